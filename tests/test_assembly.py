"""What assembly decides by itself."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from millstream import assembly

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
