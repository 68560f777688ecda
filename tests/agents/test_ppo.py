"""PPO: the closed form of its gradient against autograd of the loss as it is printed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from millstream.agents.ppo import PPOHyper
from tests.agents.rollouts import SPECS, agent_for, counted, disturbed, pick, play
from tests.agents.written_out import ppo_gradient

ACTIONS = ["discrete", "masked", "multi", "multi-masked", "continuous"]
HYPER = PPOHyper(entropy=0.03, value_weight=0.7, clip=0.1)


def prepared(agent, hyper, next_step=True, rollouts=2, seed=0):
    """A batch of an old policy, and a state that has moved on since."""
    state = disturbed(agent.init(seed), seed)
    params = agent.policy(state, hyper)
    played = [play(agent, params, steps=8, slots=4, seed=n, next_step=next_step) for n in range(rollouts)]
    state, batch = agent.prepare(state, played, hyper)
    return disturbed(state, seed + 1, 0.15), batch, played


@pytest.mark.parametrize("clip_value", [None, 0.05, 5.0])
@pytest.mark.parametrize("spec", ACTIONS)
@pytest.mark.parametrize("kind", ["mlp", "torch", "lstm"])
def test_the_gradient_equals_autograd_of_the_written_out_loss(kind, spec, clip_value):
    agent, hyper = agent_for("ppo", spec, kind), replace(HYPER, clip_value=clip_value)
    state, batch, _ = prepared(agent, hyper)
    minibatch = pick(
        batch, np.random.default_rng(0).permutation(len(batch["actions"]))[: len(batch["actions"]) * 3 // 4]
    )
    found, lesson = agent.gradients(state, minibatch, hyper)
    expected, ratio = ppo_gradient(agent, state, minibatch, hyper)
    assert np.allclose(found, expected, atol=2e-5)
    assert np.abs(expected).max() > 1e-3
    assert ratio.max() > 1 + hyper.clip, "the clip should be in force"
    assert ratio.min() < 1 - hyper.clip
    assert 0 < lesson["clipfrac"] < 1


@pytest.mark.parametrize("spec", ["image", "dictionary", "stacked"])
def test_the_gradient_is_right_for_every_kind_of_observation(spec):
    # two ways to convolve are both as far as this from double precision, where tanh is nearly flat
    for kind in ("torch", "lstm") if spec == "image" else ("mlp", "torch"):
        agent = agent_for("ppo", spec, kind)
        state, batch, _ = prepared(agent, HYPER)
        found, _ = agent.gradients(state, batch, HYPER)
        assert np.allclose(found, ppo_gradient(agent, state, batch, HYPER)[0], atol=3e-4 if spec == "image" else 2e-5)


def test_a_value_inside_the_clip_keeps_its_whole_slope():
    agent = agent_for("ppo")
    state, batch, _ = prepared(agent, HYPER)
    free, _ = agent.gradients(state, batch, HYPER)
    wide, _ = agent.gradients(state, batch, replace(HYPER, clip_value=1e6))
    assert np.array_equal(free, wide)


@pytest.mark.parametrize("kind", ["mlp", "lstm"])
def test_steps_that_only_reset_count_nowhere(kind):
    agent = agent_for("ppo", kind=kind)
    state = agent.init(0)
    rollout = play(agent, agent.policy(state, HYPER), steps=12, slots=4, next_step=True)
    assert 0 < rollout.count < rollout.valid.size
    _, batch = agent.prepare(state, [rollout], HYPER)
    assert counted(batch) == rollout.count
    before, lesson = agent.gradients(disturbed(state), batch, HYPER)
    junk = replace(rollout, rewards=np.where(rollout.valid, rollout.rewards, 1e3).astype(np.float32))
    _, other = agent.prepare(agent.init(0), [junk], HYPER)
    after, same = agent.gradients(disturbed(state), other, HYPER)
    assert np.allclose(before, after)
    assert lesson == pytest.approx(same)


def expected_next_value(agent, state, rollout, t, b, values, last):
    if rollout.terminated[t, b]:
        return 0.0
    if rollout.truncated[t, b]:
        (k,) = np.flatnonzero((rollout.final_at == (t, b)).all(axis=1))
        ends = {name: array[k : k + 1] for name, array in rollout.finals.items()}
        inputs = agent.features.inputs(ends, {})
        return float(agent.network.act(state.weights, inputs, {}, np.zeros(1, bool))[0]["value"][0])
    return values[t + 1, b] if t + 1 < rollout.steps else last[b]


def test_advantages_bootstrap_from_the_last_observation_of_a_cut_episode():
    agent, hyper = agent_for("ppo"), replace(HYPER, normalise_advantages=False, trace=0.0, discount=0.9)
    state = disturbed(agent.init(0))
    rollout = play(agent, agent.policy(state, hyper), steps=10, slots=3)
    assert rollout.truncated.any()
    assert rollout.terminated.any()
    values = rollout.extras["value"]
    inputs = agent.features.inputs({name: array[-1] for name, array in rollout.observations.items()}, {})
    last = agent.network.act(state.weights, inputs, {}, rollout.first[-1])[0]["value"].copy()
    _, batch = agent.prepare(state, [rollout], hyper)
    found = batch["advantages"].reshape(rollout.rewards.shape)
    for t in range(rollout.steps):
        for b in range(rollout.slots):
            following = expected_next_value(agent, state, rollout, t, b, values, last)
            error = rollout.rewards[t, b] + 0.9 * following - values[t, b]
            assert found[t, b] == pytest.approx(error, abs=1e-5)


def test_a_recurrent_network_bootstraps_with_the_memory_of_the_episode_that_was_cut():
    agent, hyper = agent_for("ppo", kind="lstm"), replace(HYPER, normalise_advantages=False, trace=0.0, discount=0.9)
    state = disturbed(agent.init(0))
    params = agent.policy(state, hyper)
    rollout = play(agent, params, steps=10, slots=3)
    _, batch = agent.prepare(state, [rollout], hyper)
    cuts = [tuple(at) for at in rollout.final_at if rollout.truncated[tuple(at)]]
    assert cuts
    for t, b in cuts:
        carry = {name: array[b : b + 1] for name, array in rollout.carry.items()}
        for step in range(t + 1):
            seen = {"vector": rollout.observations["obs"][step, b : b + 1]}
            _, carry = agent.network.act(params.tensors["weights"], seen, carry, rollout.first[step, b : b + 1])
        (k,) = np.flatnonzero((rollout.final_at == (t, b)).all(axis=1))
        final = {"vector": rollout.finals["obs"][k : k + 1]}
        value = agent.network.act(params.tensors["weights"], final, carry, np.zeros(1, bool))[0]["value"][0]
        error = rollout.rewards[t, b] + 0.9 * value - rollout.extras["value"][t, b]
        assert float(batch["advantages"][b, t]) == pytest.approx(error, abs=1e-5)


def test_advantages_are_normalised_over_the_steps_that_count():
    for kind in ("mlp", "lstm"):
        agent = agent_for("ppo", kind=kind)
        state = agent.init(0)
        rollout = play(agent, agent.policy(state, HYPER), steps=12, slots=4, next_step=True)
        _, batch = agent.prepare(state, [rollout], HYPER)
        advantages = np.asarray(batch["advantages"])
        kept = advantages[np.asarray(batch["valid"])] if "valid" in batch else advantages
        assert kept.mean() == pytest.approx(0, abs=1e-5)
        assert kept.std() == pytest.approx(1, abs=1e-4)


def test_a_batch_of_the_policy_itself_has_ratio_one_and_no_clipping():
    for kind in ("mlp", "torch", "lstm"):
        agent = agent_for("ppo", "masked", kind)
        state = disturbed(agent.init(0))
        rollout = play(agent, agent.policy(state, HYPER), next_step=True)
        state, batch = agent.prepare(state, [rollout], HYPER)
        _, lesson = agent.gradients(state, batch, HYPER)
        assert lesson["clipfrac"] == 0
        assert lesson["approx_kl"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("kind", ["mlp", "torch", "lstm"])
def test_a_batch_can_be_digested(kind):
    agent = agent_for("ppo", kind=kind)
    _, batch, _ = prepared(agent, HYPER)
    assert -10 < agent.digest(batch)["explained_variance"] <= 1


def test_rollouts_of_one_batch_stand_one_after_the_other():
    agent = agent_for("ppo")
    _, batch, played = prepared(agent, HYPER, next_step=True, rollouts=3)
    assert np.array_equal(batch["actions"], np.concatenate([each.actions[each.valid] for each in played]))
    assert np.array_equal(
        batch["in/vector"], np.concatenate([each.observations["obs"][:-1][each.valid] for each in played])
    )


def test_schedules_go_in_a_straight_line_and_stop_at_their_end():
    hyper = PPOHyper(learning_rate=1e-3, learning_rate_end=0.0, entropy=0.1, entropy_end=0.2)
    assert hyper.at(0) == hyper
    assert hyper.at(0.25).learning_rate == pytest.approx(7.5e-4)
    assert hyper.at(0.5).entropy == pytest.approx(0.15)
    assert hyper.at(2).learning_rate == 0
    assert PPOHyper().at(0.7) == PPOHyper()


def test_each_spec_of_the_zoo_can_be_learnt_from():
    for name in SPECS:
        kind = "torch" if name == "image" else "mlp"
        agent = agent_for("ppo", name, kind)
        state, batch, _ = prepared(agent, HYPER)
        gradient, _ = agent.gradients(state, batch, HYPER)
        assert np.isfinite(np.asarray(gradient)).all()
