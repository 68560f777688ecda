"""What every replay keeps to, whatever it picks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.core.data import Rollout, Stamp, Version
from millstream.core.ports import Replay
from millstream.replay.table import queue

Make = Callable[[int], Replay]
QUEUES: dict[str, Make] = {"queue": queue}
"""First in, first out, each sampled once."""
ALL: dict[str, Make] = {**QUEUES}


@pytest.fixture(params=ALL.values(), ids=ALL)
def make(request: pytest.FixtureRequest) -> Make:
    return request.param


@pytest.fixture(params=QUEUES.values(), ids=QUEUES)
def make_queue(request: pytest.FixtureRequest) -> Make:
    return request.param


def rollout(sequence: int, actor: int = 0) -> Rollout:
    empty = np.zeros((1, 1), bool)
    return Rollout({}, {}, np.zeros((0, 2), int), empty, empty, empty, empty, np.zeros((2, 1), bool), ~empty, {}, {},
                   Stamp("test", actor, 0, sequence, Version(0, 0), 0.0))  # fmt: skip


def sequences(replay: Replay, size: int) -> list[int] | None:
    sample = replay.sample(size)
    return None if sample is None else [each.stamp.sequence for each in sample.rollouts]


def test_a_full_table_says_no_and_loses_nothing(make_queue: Make) -> None:
    replay = make_queue(2)
    assert [replay.insert(rollout(i)) for i in range(4)] == [True, True, False, False]
    assert replay.waiting == 2 and sequences(replay, 2) == [0, 1]
    assert replay.insert(rollout(2)) and sequences(replay, 1) == [2]


def test_a_sample_larger_than_what_is_there_waits_and_takes_nothing(make: Make) -> None:
    replay = make(4)
    assert replay.sample(1) is None
    replay.insert(rollout(0))
    assert replay.sample(2) is None and replay.waiting == 1
    replay.insert(rollout(1))
    assert sequences(replay, 2) is not None


def test_a_sample_of_nothing_is_none(make: Make) -> None:
    replay = make(4)
    replay.insert(rollout(0))
    assert replay.sample(0) is None and replay.waiting == 1


def test_what_is_sampled_is_what_was_inserted_and_not_a_copy(make: Make) -> None:
    replay, mine = make(4), rollout(5)
    replay.insert(mine)
    sample = replay.sample(1)
    assert sample is not None and sample.rollouts[0] is mine


def test_keys_name_the_items_and_can_be_given_priorities(make: Make) -> None:
    replay = make(8)
    for i in range(4):
        replay.insert(rollout(i))
    one, two = replay.sample(2), replay.sample(2)
    assert one is not None and two is not None and len(one.keys) == len(one.rollouts) == 2
    assert len(np.unique(np.concatenate([one.keys, two.keys]))) == 4
    replay.reprioritise(one.keys, np.ones(2))


@given(st.lists(st.integers(0, 4), max_size=60), st.integers(1, 5))
@pytest.mark.parametrize("make_one", QUEUES.values(), ids=QUEUES)
def test_whatever_happens_each_comes_out_once_in_order(make_one: Make, moves: list[int], capacity: int) -> None:
    replay, put, got = make_one(capacity), 0, []
    for move in moves:  # 0 inserts, others sample that many
        if move:
            got += sequences(replay, move) or []
        elif replay.insert(rollout(put)):
            put += 1
        assert replay.waiting == put - len(got) <= capacity
    while (rest := sequences(replay, 1)) is not None:
        got += rest
    assert got == list(range(put))
