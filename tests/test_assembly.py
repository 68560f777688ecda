"""What assembly decides by itself."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from millstream import assembly
from millstream.core.errors import ConfigError

SMALL, HEAVY = SimpleNamespace(grain=256), SimpleNamespace(grain=32)


@pytest.mark.parametrize(
    ("agent", "actors", "timed", "threads"),
    [
        (SMALL, 1, True, 3),
        (SMALL, 3, True, 1),
        (SMALL, 9, True, 1),  # more actors than processors: the learner keeps one thread
        (SMALL, 3, False, 4),  # in turns: whoever works has all of them
        (HEAVY, 3, True, 4),
    ],
)
def test_actors_keep_their_processors(
    monkeypatch: pytest.MonkeyPatch, agent: SimpleNamespace, actors: int, timed: bool, threads: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    config = assembly.experiment(None, {"env.id": "CartPole-v1", "actor.count": actors, "learner.shards": 8})
    assert assembly.threads_for(agent, config, timed) == threads


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"env.id": "CartPole-v1", "algo": "sac"}, "sac gives numbers between bounds.* try another --algo: a2c, dqn"),
        ({"env.id": "Pendulum-v1", "algo": "dqn"}, "dqn chooses one of several actions.* --algo: .*sac, td3"),
        ({"env.id": "CartPole-v1", "algo": "a2c", "learner.stale": "correct"}, "a2c cannot.* --algo impala or ppo"),
        ({"env.id": "CartPole-v1", "algo": "dqn", "learner.stale": "correct"}, "leave learner.stale at drop"),
        ({"env.id": "CartPole-v1", "network.device": "meta"}, "'meta' cannot be used here: .*there is cpu"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_starts(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        assembly.check(assembly.experiment(None, settings))
