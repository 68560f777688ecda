"""What every replay keeps to, whatever it picks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.core.data import Rollout, Sample, Stamp, Version
from millstream.core.errors import ConfigError
from millstream.core.ports import Replay
from millstream.replay.cut import Sequences, Whole, n_step, transitions
from millstream.replay.pool import Pool
from millstream.replay.select import Fifo, Lifo, Prioritised
from millstream.replay.table import Table, queue

Make = Callable[[int], Replay]
SHARDS = 3
QUEUES: dict[str, Make] = {"queue": queue}
"""First in, first out, each sampled once."""
TABLES: dict[str, Make] = {
    "uniform": lambda capacity: Table(transitions(), capacity=capacity),
    "prioritised": lambda capacity: Table(transitions(), Prioritised(), capacity=capacity),
    "n steps": lambda capacity: Table(n_step(3), capacity=capacity),
    "sequences": lambda capacity: Table(Sequences(1), capacity=capacity),
    "first in, first out": lambda capacity: Table(transitions(), Fifo(), capacity=capacity),
    "last in, first out": lambda capacity: Table(transitions(), Lifo(), capacity=capacity),
    "whole rollouts": lambda capacity: Table(Whole(), capacity=capacity),
    "on disk": lambda capacity: Table(transitions(), capacity=capacity, folder=tempfile.gettempdir()),
    "prioritised, on disk": lambda capacity: Table(
        transitions(), Prioritised(), capacity=capacity, folder=tempfile.gettempdir()
    ),
}
"""The oldest leave, each is sampled any number of times."""
POOLS: dict[str, Make] = {
    "pool": lambda capacity: Pool(transitions(), capacity=capacity, shards=SHARDS),
    "prioritised pool": lambda capacity: Pool(transitions(), Prioritised(), capacity=capacity, shards=SHARDS),
    "pool of sequences": lambda capacity: Pool(Sequences(1), capacity=capacity, shards=SHARDS),
    "pool on disk": lambda capacity: Pool(
        transitions(), capacity=capacity, shards=SHARDS, folder=tempfile.gettempdir()
    ),
}
"""The same, spread over shards in turn."""
ALL: dict[str, Make] = {**QUEUES, **TABLES, **POOLS}


@pytest.fixture(params=ALL.values(), ids=ALL)
def make(request: pytest.FixtureRequest) -> Make:
    return request.param


@pytest.fixture(params=QUEUES.values(), ids=QUEUES)
def make_queue(request: pytest.FixtureRequest) -> Make:
    return request.param


def rollout(sequence: int, actor: int = 0) -> Rollout:
    """One step, that can be told from every other by its reward and by what was seen."""
    false = np.zeros((1, 1), bool)
    seen = np.array([sequence, sequence + 1], np.float32).reshape(2, 1, 1)
    return Rollout({"obs": seen}, {"obs": seen[:0, 0]}, np.zeros((0, 2), int), np.zeros((1, 1), int), seen[:1, :, 0],
                   false, false, np.zeros((2, 1), bool), ~false, {}, {},
                   Stamp("test", actor, 0, sequence, Version(0, 0), 0.0))  # fmt: skip


def numbers(sample: Sample) -> list[int]:
    """Which rollouts the first steps of items are from."""
    return [int(number) for each in sample.rollouts for number in each.rewards[0]]


def sequences(replay: Replay, size: int) -> list[int] | None:
    sample = replay.sample(size)
    return None if sample is None else numbers(sample)


class Model:
    """What is in a replay, as lists of numbers: oldest first, a list a shard."""

    def __init__(self, capacity: int, shards: int, once: bool):
        self.capacity, self.once, self.put = capacity, once, 0
        self.shards: list[list[int]] = [[] for _ in range(shards)]

    @property
    def held(self) -> list[int]:
        return [number for shard in self.shards for number in shard]

    def insert(self) -> bool:
        shard = self.shards[self.put % len(self.shards)]
        if self.once and len(shard) == self.capacity:
            return False
        shard.append(self.put)
        del shard[: -self.capacity]
        self.put += 1
        return True

    def picked(self, size: int, found: list[int] | None) -> bool:
        """Whether a sample of this size may be that."""
        enough = size if self.once else 1
        if size < 1 or len(self.held) < enough:
            return found is None
        if not self.once:
            return found is not None and len(found) == size and set(found) <= set(self.held)
        first, self.shards[0] = self.shards[0][:size], self.shards[0][size:]
        return found == first


@settings(deadline=None, max_examples=60)
@given(moves=st.lists(st.integers(-1, 4), max_size=40), capacity=st.integers(1, 5))
@pytest.mark.parametrize("name", ALL)
def test_whatever_happens_it_holds_what_the_model_holds(name: str, moves: list[int], capacity: int) -> None:
    replay, model = ALL[name](capacity), Model(capacity, SHARDS if name in POOLS else 1, name in QUEUES)
    keys = np.zeros(0, np.int64)
    for move in moves:  # -1 gives priorities to what was last picked, 0 samples none, 1 inserts, others sample so many
        if move == 1:
            assert replay.insert(rollout(model.put)) == model.insert()
        elif move == -1:
            replay.reprioritise(keys, np.linspace(0.1, 2, len(keys)))
        else:
            sample = replay.sample(move)
            assert model.picked(move, None if sample is None else numbers(sample))
            keys = keys if sample is None else sample.keys
            assert sample is None or len(sample.keys) == move
        assert replay.waiting == len(model.held) <= capacity * len(model.shards)


def test_a_full_queue_says_no_and_loses_nothing(make_queue: Make) -> None:
    replay = make_queue(2)
    assert [replay.insert(rollout(i)) for i in range(4)] == [True, True, False, False]
    assert replay.waiting == 2 and sequences(replay, 2) == [0, 1]
    assert replay.insert(rollout(2)) and sequences(replay, 1) == [2]


def test_a_sample_larger_than_what_is_there_waits_and_takes_nothing(make_queue: Make) -> None:
    replay = make_queue(4)
    assert replay.sample(1) is None
    replay.insert(rollout(0))
    assert replay.sample(2) is None and replay.waiting == 1
    replay.insert(rollout(1))
    assert sequences(replay, 2) is not None


def test_an_empty_replay_gives_nothing_and_a_sample_of_nothing_is_none(make: Make) -> None:
    replay = make(4)
    assert replay.waiting == 0 and replay.sample(1) is None
    replay.insert(rollout(0))
    assert replay.sample(0) is None and replay.sample(-1) is None and replay.waiting == 1


def test_what_is_sampled_is_what_was_inserted(make: Make) -> None:
    replay = make(4)
    for i in range(3):
        replay.insert(rollout(i))
    sample = replay.sample(3)
    assert sample is not None
    for each in sample.rollouts:
        assert each.valid[0].all() and not each.terminated.any()
        np.testing.assert_array_equal(each.observations["obs"][0, :, 0], each.rewards[0])
    assert set(numbers(sample)) <= {0, 1, 2}


def test_whole_rollouts_are_not_copied(make_queue: Make) -> None:
    replay, mine = make_queue(4), rollout(5)
    replay.insert(mine)
    sample = replay.sample(1)
    assert sample is not None and sample.rollouts[0] is mine


def test_keys_name_the_items_and_can_be_given_priorities(make: Make) -> None:
    replay = make(8)
    for i in range(4):
        replay.insert(rollout(i))
    named: dict[int, int] = {}
    for _ in range(2):
        sample = replay.sample(2)
        assert sample is not None
        for key, number in zip(np.asarray(sample.keys).tolist(), numbers(sample), strict=True):
            assert named.setdefault(key, number) == number
        replay.reprioritise(sample.keys, np.ones(2))
    assert len(set(named.values())) == len(named)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0])
def test_a_priority_that_is_none_is_refused(make: Make, wrong: float) -> None:
    replay = make(4)
    replay.insert(rollout(0))
    sample = replay.sample(1)
    assert sample is not None
    with pytest.raises(ConfigError, match="a priority is a number from 0 on"):
        replay.reprioritise(sample.keys, np.array([wrong]))


def test_items_that_left_are_passed_over_when_their_priority_comes(make: Make) -> None:
    replay, put = make(2), 0
    while put < 2:
        put += replay.insert(rollout(put))
    sample = replay.sample(1)
    assert sample is not None
    for _ in range(20):
        put += replay.insert(rollout(put))
        replay.sample(1)
    replay.reprioritise(sample.keys, np.array([1e9]))
    replay.insert(rollout(put))
    assert sequences(replay, 1) is not None


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
