"""IMPALA: the closed form of its gradient against autograd of the loss, with V-trace by its definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from millstream.agents.impala import ImpalaHyper
from tests.agents.rollouts import agent_for, disturbed, pick, play
from tests.agents.written_out import impala_gradient

ACTIONS = ["discrete", "masked", "multi", "multi-masked", "continuous"]
HYPER = ImpalaHyper(entropy=0.03, value_weight=0.7, discount=0.95)


def prepared(agent, hyper, next_step=True, seed=0):
    """A batch of an old policy, and a state that has moved on since."""
    state = disturbed(agent.init(seed), seed)
    params = agent.policy(state, hyper)
    played = [play(agent, params, steps=8, slots=3, seed=n, next_step=next_step) for n in range(2)]
    state, batch = agent.prepare(state, played, hyper)
    return disturbed(state, seed + 1, 0.15), batch, played


@pytest.mark.parametrize("spec", ACTIONS)
@pytest.mark.parametrize("kind", ["mlp", "torch", "lstm"])
def test_the_gradient_equals_autograd_of_the_written_out_loss(kind, spec):
    agent, hyper = agent_for("impala", spec, kind), replace(HYPER, trace=0.9, clip_rho=1.2, clip_c=0.8)
    state, batch, _ = prepared(agent, hyper)
    minibatch = pick(batch, np.array([4, 0, 3, 1]))
    found, lesson = agent.gradients(state, minibatch, hyper)
    expected = impala_gradient(agent, state, minibatch, hyper)
    assert np.allclose(found, expected, atol=2e-5)
    assert np.abs(expected).max() > 1e-3
    assert lesson["approx_kl"] > 1e-4, "the policy should have moved"


@pytest.mark.parametrize("spec", ["image", "dictionary", "stacked"])
def test_the_gradient_is_right_for_every_kind_of_observation(spec):
    # two ways to convolve are both as far as this from double precision, where tanh is nearly flat
    for kind in ("torch", "lstm") if spec == "image" else ("mlp", "torch"):
        agent = agent_for("impala", spec, kind)
        state, batch, _ = prepared(agent, HYPER, next_step=False)
        found, _ = agent.gradients(state, batch, HYPER)
        assert np.allclose(found, impala_gradient(agent, state, batch, HYPER), atol=3e-4 if spec == "image" else 2e-5)


def test_a_row_of_a_batch_is_the_sequence_of_a_slot():
    agent = agent_for("impala")
    _, batch, played = prepared(agent, HYPER)
    assert batch["in/vector"].shape == (6, 9, 3)
    for row in range(6):
        rollout, slot = played[row // 3], row % 3
        assert np.array_equal(batch["actions"][row], rollout.actions[:, slot])
        assert np.array_equal(batch["in/vector"][row], rollout.observations["obs"][:, slot])
        assert np.array_equal(batch["ended"][row], (rollout.terminated | rollout.truncated)[:, slot])


def test_what_follows_an_ending_is_nothing_or_the_value_of_the_last_observation():
    agent = agent_for("impala")
    state = disturbed(agent.init(0))
    rollout = play(agent, agent.policy(state, HYPER), steps=12, slots=3)
    _, batch = agent.prepare(state, [rollout], HYPER)
    outputs, _ = agent.network.act(state.weights, {"vector": rollout.finals["obs"]}, {}, None)
    kinds = set()
    for (t, b), value in zip(rollout.final_at, outputs["value"], strict=True):
        kinds.add(bool(rollout.terminated[t, b]))
        expected = 0 if rollout.terminated[t, b] else value
        assert batch["next_values"][b, t] == pytest.approx(expected, abs=1e-6)
    assert kinds == {True, False}


@pytest.mark.parametrize("kind", ["mlp", "lstm"])
def test_steps_that_only_reset_count_nowhere(kind):
    agent = agent_for("impala", kind=kind)
    state = agent.init(0)
    rollout = play(agent, agent.policy(state, HYPER), steps=12, slots=4, next_step=True)
    assert 0 < rollout.count < rollout.valid.size
    _, batch = agent.prepare(state, [rollout], HYPER)
    before, _ = agent.gradients(disturbed(state), batch, HYPER)
    junk = replace(rollout, rewards=np.where(rollout.valid, rollout.rewards, 1e3).astype(np.float32))
    _, other = agent.prepare(agent.init(0), [junk], HYPER)
    after, _ = agent.gradients(disturbed(state), other, HYPER)
    assert np.allclose(before, after)


def test_the_last_observation_lends_its_value_and_learns_nothing():
    agent = agent_for("impala")
    state, batch, _ = prepared(agent, HYPER)
    other = {**batch, "in/vector": batch["in/vector"].copy()}
    other["in/vector"][:, -1] += 1
    for discount, same in ((0.0, True), (0.95, False)):
        hyper = replace(HYPER, discount=discount)
        one, two = (agent.gradients(state, each, hyper)[0].copy() for each in (batch, other))
        assert np.allclose(one, two, atol=1e-7) is same
