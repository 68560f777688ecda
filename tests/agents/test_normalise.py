"""Running statistics: batch by batch they equal those of everything at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.agents.normalise import Moments, RewardScale
from millstream.core.data import Stamp, Version
from tests.agents.rollouts import agent_for, play


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 1000), st.floats(-1e3, 1e3))
def test_moments_of_pieces_are_the_moments_of_the_whole(sizes, seed, shift):
    rows = np.random.default_rng(seed).normal(shift, 2, (sum(sizes), 3)).astype(np.float32)
    moments = Moments.of((3,))
    for piece in np.split(rows, np.cumsum(sizes)[:-1]):
        moments.see(piece)
    if len(rows):
        whole = rows.astype(np.float64)
        assert np.allclose(moments.mean, whole.mean(axis=0))
        assert np.allclose(moments.variance, whole.var(axis=0), atol=1e-6)
    else:
        assert moments.mean.tolist() == [0, 0, 0]
        assert moments.variance.tolist() == [1, 1, 1]
    assert moments.count == len(rows)


def test_moments_stay_arrays_even_without_a_shape():
    moments = Moments.of(())
    moments.see(np.arange(4.0))
    assert isinstance(moments.mean, np.ndarray)
    assert isinstance(moments.variance, np.ndarray)
    assert moments.mean == 1.5


def rollout_with(rewards, terminated, actor=0, valid=None):
    agent = agent_for()
    shape = np.shape(rewards)
    made = play(agent, agent.policy(agent.init(0), agent.Hyper()), steps=shape[0], slots=shape[1], ends=0)
    return replace(
        made,
        rewards=np.array(rewards, np.float32),
        terminated=np.array(terminated, bool),
        valid=np.ones(shape, bool) if valid is None else np.array(valid, bool),
        stamp=Stamp("test", actor, 0, 0, Version(0, 0), 0.0),
    )


def test_rewards_are_scaled_by_the_spread_of_discounted_returns():
    # returns so far, discount 0.5: 1, 2.5, 2.25 | the episode ends | 4
    scale = RewardScale()
    scale.see(rollout_with([[1], [2], [1], [4]], [[0], [0], [1], [0]]), 0.5)
    spread = np.std([1, 2.5, 2.25, 4])
    assert scale.moments.variance == pytest.approx(spread**2)
    assert scale.apply(np.array([2.0, -1.0])) == pytest.approx([2 / spread, -1 / spread])
    assert scale.apply(np.array([1e6])).tolist() == [10]
    assert scale.apply(np.array([1.0])).dtype == np.float32


def test_a_return_goes_on_in_the_next_rollout_of_the_same_actor_only():
    scale = RewardScale()
    scale.see(rollout_with([[1], [1]], [[0], [0]], actor=0), 1.0)
    scale.see(rollout_with([[1]], [[0]], actor=1), 1.0)
    scale.see(rollout_with([[1]], [[1]], actor=0), 1.0)
    assert scale.running == {"0": np.array([0.0]), "1": np.array([1.0])}
    assert scale.moments.variance == pytest.approx(np.var([1, 2, 1, 3]))


def test_steps_that_only_reset_are_not_seen():
    scale = RewardScale()
    scale.see(rollout_with([[1], [5], [0], [2]], [[0], [1], [0], [0]], valid=[[1], [1], [0], [1]]), 1.0)
    assert scale.moments.count == 3
    assert scale.moments.variance == pytest.approx(np.var([1, 6, 2]))


@pytest.mark.parametrize("algorithm", ["ppo", "impala"])
def test_statistics_move_after_the_batch_was_read_and_travel_with_the_policy(algorithm):
    agent = agent_for(algorithm, "dictionary")
    hyper = replace(agent.Hyper(), normalise_observations=True)
    state = agent.init(0)
    before = agent.policy(state, hyper)
    rollout = play(agent, before, steps=8, next_step=True)
    state, batch = agent.prepare(state, [rollout], hyper)
    seen = rollout.observations["where"][:-1][rollout.valid]
    after = agent.policy(state, hyper)
    assert after.tensors["mean/where"] == pytest.approx(seen.mean(axis=0), abs=1e-5)
    assert after.tensors["scale/where"] == pytest.approx(1 / seen.std(axis=0), rel=1e-4)
    _, lesson = agent.gradients(state, batch, hyper)
    assert lesson["approx_kl"] == pytest.approx(0, abs=1e-6), "the batch was read as its policy saw it"


def test_statistics_stay_at_home_when_nobody_asked_for_them():
    agent = agent_for("ppo")
    state, hyper = agent.init(0), agent.Hyper()
    state, _ = agent.prepare(state, [play(agent, agent.policy(state, hyper))], hyper)
    assert set(agent.policy(state, hyper).tensors) == {"weights"}
    assert state.observations["obs"].count == 0
    assert state.rewards.moments.count == 0


def test_scaled_rewards_reach_the_advantages():
    agent = agent_for("ppo")
    hyper = replace(agent.Hyper(), normalise_rewards=True, normalise_advantages=False, discount=0.0)
    state = agent.init(0)
    rollout = play(agent, agent.policy(state, hyper), steps=8)
    state, batch = agent.prepare(state, [rollout], hyper)
    assert state.rewards.moments.count == rollout.count
    expected = rollout.rewards / rollout.rewards.std() - rollout.extras["value"]
    assert np.allclose(batch["advantages"], expected.reshape(-1), atol=1e-4)
