"""Cloning: the closed form of its gradient against autograd of the loss as it is printed, and what it comes to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from millstream.agents.cloning import CloningHyper
from millstream.core.errors import ConfigError
from millstream.replay.cut import transitions
from millstream.replay.table import Table
from tests.agents.rollouts import agent_for, disturbed, play

torch = pytest.importorskip("torch")

from tests.agents.written_out import log_prob_and_entropy, outputs_of, tensors  # noqa: E402

HYPER = CloningHyper(entropy=0.05)


def picked(agent, params, size=48, **how):
    """Steps as a table gives them, of a player with other weights."""
    table = Table(transitions(), capacity=1_000, rng=np.random.default_rng(0))
    for sequence in range(4):
        made = play(agent, params, steps=8, seed=sequence, **how)
        table.insert(replace(made, stamp=replace(made.stamp, sequence=sequence)))
    return table.sample(size).rollouts


@pytest.mark.parametrize("kind", ["mlp", "torch"])
@pytest.mark.parametrize("spec", ["discrete", "masked", "multi", "multi-masked", "continuous", "stacked", "dictionary"])
@pytest.mark.parametrize("normal", [False, True])
def test_the_gradient_equals_autograd_of_the_written_out_loss(kind, spec, normal):
    agent, hyper = agent_for("cloning", spec, kind), replace(HYPER, normalise_observations=normal)
    other, state = disturbed(agent.init(1), 1), disturbed(agent.init(2), 2)
    state, batch = agent.prepare(state, picked(agent, agent.policy(other, HYPER)), hyper)
    found, lesson = agent.gradients(state, batch, hyper)
    rows = tensors(batch)
    flat = torch.as_tensor(np.asarray(state.weights)).clone().requires_grad_()
    outputs = outputs_of(agent, flat, rows, False)
    log_prob, entropy = log_prob_and_entropy(agent.spec.action, outputs, rows["actions"], rows.get("mask"))
    (-log_prob - hyper.entropy * entropy).mean().backward()
    np.testing.assert_allclose(np.asarray(found), flat.grad.numpy(), rtol=1e-3, atol=2e-6)
    assert np.abs(np.asarray(found)).max() > 1e-3
    assert lesson["policy_loss"] == pytest.approx(float(-log_prob.detach().mean()), rel=1e-4)
    assert lesson["entropy"] == pytest.approx(float(entropy.detach().mean()), rel=1e-4)


def test_values_are_left_alone():
    agent = agent_for("cloning")
    state, batch = agent.prepare(agent.init(0), picked(agent, agent.policy(agent.init(1), HYPER)), HYPER)
    named = agent.network.names(agent.gradients(state, batch, HYPER)[0])
    assert not named["value.weight"].any() and not named["value.bias"].any() and named["policy.weight"].any()


@pytest.mark.parametrize("spec", ["discrete", "multi-masked", "continuous"])
def test_what_another_player_does_becomes_probable(spec):
    agent, hyper = agent_for("cloning", spec), replace(HYPER, entropy=0.0, learning_rate=5e-3)
    player = disturbed(agent.init(1), 1, 1.0)
    state, batch = agent.prepare(agent.init(2), picked(agent, agent.policy(player, hyper), size=512), hyper)
    losses = []
    for _ in range(300):
        gradients, lesson = agent.gradients(state, batch, hyper)
        state = agent.apply(state, gradients, hyper)
        losses.append(lesson["policy_loss"])
    assert losses[-1] < losses[0] - 0.1


def test_a_mask_is_the_one_that_the_recorded_player_had():
    agent = agent_for("cloning", "masked")
    _, batch = agent.prepare(agent.init(0), picked(agent, agent.policy(agent.init(1), HYPER)), HYPER)
    assert batch["mask"][np.arange(48), batch["actions"]].all() and not batch["mask"].all()


def test_statistics_are_those_of_the_data_and_go_with_the_policy():
    agent, hyper = agent_for("cloning"), replace(HYPER, normalise_observations=True)
    rollouts = picked(agent, agent.policy(agent.init(1), HYPER), size=200)
    state, batch = agent.prepare(agent.init(0), rollouts, hyper)
    seen = rollouts[0].observations["obs"][0]
    params = agent.policy(state, hyper)
    assert np.allclose(params.tensors["mean/obs"], seen.mean(axis=0), atol=1e-5)
    assert np.allclose(batch["in/vector"].mean(axis=0), 0, atol=1e-4)
    assert np.allclose(batch["in/vector"].std(axis=0), 1, atol=1e-2)


def test_a_network_with_memory_is_refused():
    with pytest.raises(ConfigError, match="cloning learns from single steps"):
        agent_for("cloning", kind="lstm")
