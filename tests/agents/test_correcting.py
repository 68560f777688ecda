"""Stale rollouts, corrected: V-trace with the present policy, in the place of GAE with the acting one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from millstream.agents import registry
from millstream.agents.ppo import PPOHyper
from tests.agents.rollouts import agent_for, disturbed, play
from tests.agents.written_out import ppo_gradient, slow_correction

ACTIONS = ["discrete", "masked", "multi", "multi-masked", "continuous"]
PLAIN = PPOHyper(normalise_advantages=False, discount=0.95, trace=0.9, clip_rho=1.2, clip_c=0.8, clip=0.1)


def stale(agent, hyper, seed=0, moved=0.15, **how):
    """A state, and rollouts of one that it has moved on from."""
    state = disturbed(agent.init(seed), seed)
    params = agent.policy(state, hyper)
    played = [play(agent, params, steps=8, slots=3, seed=n, **how) for n in range(2)]
    return disturbed(state, seed + 1, moved), played


def in_place(column, rollout, sequences):
    """A column of a batch of one rollout in which every step counts, as [T, B]."""
    shape = rollout.rewards.shape
    array = np.asarray(column)
    return array.T if sequences else array.reshape(shape)


@pytest.mark.parametrize("spec", [*ACTIONS, "stacked", "dictionary"])
@pytest.mark.parametrize("kind", ["mlp", "torch", "lstm"])
def test_targets_and_advantages_are_those_of_the_written_out_vtrace(kind, spec):
    agent = agent_for("ppo", spec, kind)
    state, (rollout, _) = stale(agent, PLAIN)
    assert rollout.terminated.any() and rollout.truncated.any()
    _, batch = agent.correct(state, [rollout], [True], PLAIN)
    targets, advantages = slow_correction(agent, state, rollout, PLAIN)
    assert np.allclose(in_place(batch["returns"], rollout, agent.sequences), targets, atol=2e-5)
    assert np.allclose(in_place(batch["advantages"], rollout, agent.sequences), advantages, atol=2e-5)
    plain, _ = slow_correction(agent, state, rollout, replace(PLAIN, clip_rho=1.0, clip_c=1.0))
    assert np.abs(plain - targets).max() > 1e-3, "the clips should be in force"


@pytest.mark.parametrize("kind", ["mlp", "torch", "lstm"])
def test_where_the_policies_agree_nothing_is_corrected(kind):
    hyper = replace(PLAIN, clip_rho=1.0, clip_c=1.0)
    agent = agent_for("ppo", "masked", kind)
    state, played = stale(agent, hyper, moved=0.0, next_step=True)
    _, plain = agent.prepare(state, played, hyper)
    _, corrected = agent.correct(state, played, [True, True], hyper)
    assert plain.keys() == corrected.keys()
    for name, column in plain.items():
        assert np.allclose(column, corrected[name], atol=1e-5), name


@pytest.mark.parametrize("kind", ["mlp", "lstm"])
def test_only_what_is_stale_is_corrected(kind):
    agent = agent_for("ppo", kind=kind)
    state, played = stale(agent, PLAIN)
    _, plain = agent.prepare(state, played, PLAIN)
    _, corrected = agent.correct(state, played, [False, True], PLAIN)
    half = len(plain["actions"]) // 2
    assert np.array_equal(plain["advantages"][:half], corrected["advantages"][:half])
    assert not np.allclose(plain["advantages"][half:], corrected["advantages"][half:])
    for name in ("log_prob", "actions", "in/vector"):
        assert np.array_equal(plain[name], corrected[name]), name


@pytest.mark.parametrize("spec", ACTIONS)
@pytest.mark.parametrize("kind", ["mlp", "torch", "lstm"])
def test_the_gradient_of_a_corrected_batch_equals_autograd_of_the_written_out_loss(kind, spec):
    agent, hyper = agent_for("ppo", spec, kind), replace(PLAIN, normalise_advantages=True, entropy=0.03)
    state, played = stale(agent, hyper, next_step=True)
    state, batch = agent.correct(state, played, [True, False], hyper)
    found, lesson = agent.gradients(state, batch, hyper)
    expected, _ = ppo_gradient(agent, state, batch, hyper)
    assert np.allclose(found, expected, atol=2e-5) and np.abs(expected).max() > 1e-3
    assert 0 < lesson["clipfrac"] < 1, "the ratio is that to the policy which acted"


@pytest.mark.parametrize("spec", ACTIONS)
def test_numpy_and_torch_agree_in_what_a_corrected_batch_teaches(spec):
    numpy, torch = agent_for("ppo", spec, "mlp"), agent_for("ppo", spec, "torch")
    state, played = stale(numpy, PLAIN, next_step=True)
    twin = torch.init(0)
    twin.weights = torch.network.place(state.weights)
    _, one = numpy.correct(state, played, [True, True], PLAIN)
    _, other = torch.correct(twin, played, [True, True], PLAIN)
    for name, column in one.items():
        assert np.allclose(column, np.asarray(other[name]), atol=1e-5), name
    (first, _), (second, _) = numpy.gradients(state, one, PLAIN), torch.gradients(twin, other, PLAIN)
    assert np.allclose(first, np.asarray(second), atol=1e-5)


def test_policies_that_have_nothing_in_common_give_numbers_all_the_same():
    agent = agent_for("ppo", "continuous")
    state, played = stale(agent, PLAIN, moved=3.0)
    state, batch = agent.correct(state, played, [True, True], PLAIN)
    gradient, _ = agent.gradients(state, batch, PLAIN)
    assert np.isfinite(gradient).all()


def test_impala_does_what_it_always_does():
    agent = agent_for("impala")
    hyper = agent.Hyper()
    state, played = stale(agent, hyper)
    _, plain = agent.prepare(state, played, hyper)
    _, corrected = agent.correct(state, played, [True, False], hyper)
    for name, column in plain.items():
        assert np.array_equal(column, corrected[name]), name


def test_who_can_correct_is_known():
    assert [name for name in registry.names() if hasattr(registry.find(name), "correct")] == ["impala", "ppo"]
