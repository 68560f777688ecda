"""Experience in a user's hands."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest

from millstream import DistributedAgent, DistributedEnvironment, ParameterServer
from millstream.core.codec import encode
from millstream.core.data import Policy, Rollout, Version
from millstream.core.errors import ConfigError, RunError


def playing(**settings: Any) -> tuple[DistributedEnvironment, DistributedAgent, ParameterServer]:
    environment = DistributedEnvironment(envs_per_worker=4, unroll=8, **settings)
    agent = DistributedAgent(environment)
    server = ParameterServer(agent.parameters())
    environment.connect(agent, server)
    return environment, agent, server


def made(environment: DistributedEnvironment, count: int) -> list[bytes]:
    """So many rollouts, as bytes without the time at which they were made."""
    found: list[Rollout] = []
    while len(found) < count:
        for rollout in environment.generate():
            stamp = rollout.stamp
            found.append(encode(rollout_at(rollout, 0.0)))
            environment.release(stamp)
    return found[:count]


def rollout_at(rollout: Rollout, when: float) -> Rollout:
    from dataclasses import replace

    return replace(rollout, stamp=replace(rollout.stamp, made_at=when))


def test_every_worker_hands_out_rollouts_of_the_asked_size() -> None:
    environment, _, _ = playing(num_workers=3)
    rollouts = environment.generate()
    assert [rollout.stamp.actor for rollout in rollouts] == [0, 1, 2]
    assert all(rollout.rewards.shape == (8, 4) for rollout in rollouts)
    assert environment.stride == 3 * 4 * 8
    assert environment.statistics()["steps"] == 3 * 4 * 8


def test_inline_workers_repeat_bit_for_bit_and_another_seed_does_not() -> None:
    first, second, other = (made(playing(num_workers=2, seed=seed)[0], 6) for seed in (5, 5, 6))
    assert first == second
    assert first != other


def test_a_worker_without_credit_waits_for_what_it_made_to_come_back() -> None:
    environment, _, _ = playing()
    held = [rollout for _ in range(5) for rollout in environment.generate()]
    assert len(held) == 2  # what PPO bears: one update's worth beside the newest
    environment.release(held[0].stamp)
    assert len(environment.generate()) == 1


def test_workers_act_with_the_newest_policy_of_the_server() -> None:
    environment, agent, server = playing()
    assert environment.generate()[0].stamp.policy == Version(0, 0)
    server.publish(Policy(Version(1, 7), agent.parameters()))
    assert environment.generate()[0].stamp.policy == Version(1, 7)


def test_a_share_for_one_worker_plays_the_same_world_with_other_luck() -> None:
    environment, agent, server = playing(num_workers=2)
    shares = [environment.worker(index) for index in (0, 1)]
    for share in shares:
        share.connect(agent, server)
    played = [share.generate()[0] for share in shares]
    assert [share.num_workers for share in shares] == [1, 1]
    assert not np.array_equal(played[0].actions, played[1].actions)


def test_processes_play_by_themselves_and_a_killed_one_is_replaced() -> None:
    environment, _, _ = playing(num_workers=2, workers="processes")
    try:
        seen: set[tuple[int, int]] = set()
        killed = False
        while not killed or (0, 1) not in seen:
            for rollout in environment.generate():
                seen.add((rollout.stamp.actor, rollout.stamp.epoch))
                environment.release(rollout.stamp)
            if (0, 0) in seen and not killed:
                workers = environment._players._crew.host.workers()  # type: ignore[union-attr]
                os.kill(next(worker.pid for worker in workers if worker.index == 0), signal.SIGKILL)
                killed = True
        assert environment.statistics()["replaced"] == 1
        assert any("actor-0 died" in report.get("text", "") for report in environment.reports())
    finally:
        environment.close()


def test_an_evaluation_is_apart_from_training() -> None:
    environment, agent, server = playing()
    before = made(environment, 1)
    verdict = environment.evaluate(agent, server.get(), episodes=5)
    assert verdict["episodes"] == 5 and verdict["mean"] > 0
    assert environment.evaluate(agent, server.get(), episodes=5) == verdict
    fresh = made(playing()[0], 2)
    assert before + made(environment, 1) == fresh


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_workers": 0}, "at least 1 worker"),
        ({"num_workers": 17}, "actor.count"),
        ({"num_workers": "two"}, "num_workers='two'"),
        ({"workers": "threads"}, "workers='threads'"),
        ({"args": {"wings": 2}}, "wings"),
        ({"env": "CartPole-v9"}, "CartPole"),
    ],
)
def test_a_wrong_argument_is_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(Exception, match=words):
        DistributedEnvironment(**settings)


def test_nobody_plays_before_there_is_somebody_to_play_for() -> None:
    with pytest.raises(RunError, match="connect"):
        DistributedEnvironment().generate()


def test_processes_refuse_an_agent_that_they_could_not_build() -> None:
    class Mine:
        spec = None

    environment = DistributedEnvironment(workers="processes")
    with pytest.raises(ConfigError, match="Mine has none"):
        environment.connect(Mine(), ParameterServer())


def test_processes_build_the_agent_with_the_hyper_parameters_that_shape_it() -> None:
    environment = DistributedEnvironment(envs_per_worker=4, unroll=8, workers="processes")
    agent = DistributedAgent(environment, "dqn", atoms=11, v_min=0.0, v_max=100.0)
    environment.connect(agent, ParameterServer(agent.parameters()))
    try:
        while not (rollouts := environment.generate()):
            continue
        assert rollouts[0].rewards.shape == (8, 4)
    finally:
        environment.close()
