"""Replay buffers in a user's hands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from millstream import DistributedAgent, DistributedEnvironment, ParameterServer, ReplayBufferPool
from millstream.core.data import Rollout
from millstream.core.errors import ConfigError


@pytest.fixture
def rollouts() -> list[Rollout]:
    environment = DistributedEnvironment(envs_per_worker=4, unroll=8)
    agent = DistributedAgent(environment)
    environment.connect(agent, ParameterServer(agent.parameters()))
    return [environment.generate()[0] for _ in range(2)]


def for_an_agent(algo: str, pool: ReplayBufferPool, **hyper: Any) -> ReplayBufferPool:
    environment = DistributedEnvironment(envs_per_worker=4, unroll=8)
    pool.connect(environment, DistributedAgent(environment, algo, **hyper))
    return pool


def test_alone_it_holds_single_steps_spread_over_its_buffers(rollouts: list[Rollout]) -> None:
    pool = ReplayBufferPool(1_000, num_buffers=2)
    assert pool.sample(4) is None
    assert all(pool.insert(rollout) for rollout in rollouts)
    assert pool.statistics()["by_shard"] == [32, 32]
    sample = pool.sample(16)
    assert sample is not None and sample.rollouts[0].rewards.shape == (1, 16)
    assert pool.copies


def test_for_an_agent_that_learns_once_it_is_a_queue(rollouts: list[Rollout]) -> None:
    pool = for_an_agent("ppo", ReplayBufferPool())
    assert not pool.copies
    assert [pool.insert(rollout) for rollout in (*rollouts, rollouts[0])] == [True, True, False]
    sample = pool.sample(1)
    assert sample is not None and sample.rollouts[0] is rollouts[0]
    assert pool.statistics() == {"waiting": 1, "capacity": 2, "inserted": 2, "sampled": 1}
    with pytest.raises(ConfigError, match="nothing to save"):
        pool.save("anywhere")


def test_an_agent_that_learns_again_and_again_says_how(rollouts: list[Rollout]) -> None:
    pool = for_an_agent("dqn", ReplayBufferPool(), n_step=3, prioritised=True, learning_starts=16, samples_per_step=2.0)
    assert pool.insert(rollouts[0])
    sample = pool.sample(8)
    assert sample is not None and sample.weights is not None
    assert sample.rollouts[0].rewards.shape == (3, 8)


def test_what_the_user_says_comes_before_what_the_agent_says(rollouts: list[Rollout]) -> None:
    chosen = ReplayBufferPool(prioritised=False, n_step=2)
    pool = for_an_agent("dqn", chosen, n_step=3, prioritised=True, learning_starts=1)
    pool.insert(rollouts[0])
    sample = pool.sample(8)
    assert sample is not None and sample.weights is None and sample.rollouts[0].rewards.shape == (2, 8)


def test_it_grows_and_shrinks_while_in_use(rollouts: list[Rollout]) -> None:
    pool = ReplayBufferPool(1_000, num_buffers=4)
    for rollout in rollouts:
        pool.insert(rollout)
    pool.resize(1)
    assert (pool.num_buffers, pool.waiting) == (1, 64)
    pool.resize(3)
    assert pool.insert(rollouts[0]) and pool.statistics()["shards"] == 3


def test_a_saved_pool_goes_on_exactly_as_it_would_have(rollouts: list[Rollout], tmp_path: Any) -> None:
    pool, copy = (ReplayBufferPool(100, num_buffers=2, prioritised=True, seed=seed) for seed in (3, 4))
    for rollout in rollouts:
        pool.insert(rollout)
    first = pool.sample(8)
    assert first is not None
    pool.reprioritise(first.keys, np.arange(8) + 0.5)
    pool.save(tmp_path / "pool")
    copy.load(tmp_path / "pool")
    for _ in range(3):
        here, there = pool.sample(8), copy.sample(8)
        assert here is not None and there is not None
        assert np.array_equal(here.keys, there.keys) and np.array_equal(here.weights, there.weights)
        assert np.array_equal(here.rollouts[0].rewards, there.rollouts[0].rewards)


def test_a_saved_pool_is_loaded_once_an_agent_has_said_how(rollouts: list[Rollout], tmp_path: Any) -> None:
    pool = for_an_agent("dqn", ReplayBufferPool(1_000, 2), n_step=3, learning_starts=1)
    pool.insert(rollouts[0])
    pool.save(tmp_path / "pool")
    copy = ReplayBufferPool(1_000, 2)
    copy.load(tmp_path / "pool")
    assert copy.waiting == 0
    assert for_an_agent("dqn", copy, n_step=3, learning_starts=1).waiting == pool.waiting > 0


def test_a_pool_serves_one_kind_of_agent(rollouts: list[Rollout]) -> None:
    pool = for_an_agent("ppo", ReplayBufferPool())
    with pytest.raises(ConfigError, match="another kind"):
        for_an_agent("dqn", pool)


@pytest.mark.parametrize("wrong", [{"num_buffers": 0}, {"capacity": 2, "num_buffers": 3}])
def test_a_pool_without_room_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="at least 1 buffer of 1 step"):
        ReplayBufferPool(**wrong)


def test_an_unknown_balance_is_named(rollouts: list[Rollout]) -> None:
    with pytest.raises(ConfigError, match="by_actor, got 'random'"):
        ReplayBufferPool(balance="random").insert(rollouts[0])
