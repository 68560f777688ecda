"""Tables that are kept as places in a log: what is filled again goes on as if nothing had happened, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.core import tree
from millstream.core.codec import decode, encode
from millstream.core.data import Delivery, Rollout
from millstream.core.errors import CheckpointError, ConfigError
from millstream.replay.cut import Sequences, Windows, n_step, transitions
from millstream.replay.limit import Free, Lifted, SamplesPerInsert
from millstream.replay.refilled import Refilled
from millstream.replay.select import Prioritised, Uniform
from millstream.replay.table import Table, queue
from tests.replay.making import Worlds


class Log:
    """Every rollout that was ever inserted, in a source of its actor's; positions have gaps."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int], bytes] = {}

    def append(self, rollout: Rollout) -> Delivery[Rollout]:
        source, position = f"part-{rollout.stamp.actor}", 1_000 + 3 * len(self.kept)
        self.kept[source, position] = encode(rollout)
        return Delivery(rollout, source, position)

    def reread(self, places: Sequence[tuple[str, int]]) -> Iterator[Rollout]:
        return (decode(self.kept[place]) for place in places if place in self.kept)


def made(log: Log, cut: Windows | Sequences, prioritised: bool, seed: int, capacity: int = 40) -> Refilled:
    select = Prioritised() if prioritised else Uniform()
    return Refilled(Table(cut, select, capacity=capacity, rng=np.random.default_rng(seed)), log.reread)


def give(to: Sequence[Refilled], log: Log, rollout: Rollout) -> None:
    delivery = log.append(rollout)
    for each in to:
        assert each.insert(rollout)
        each.placed(delivery)


def written_and_read(snapshot: Any) -> Any:
    """As a checkpoint writes and reads it."""
    arrays, skeleton = tree.flatten(snapshot)
    return tree.unflatten({name: array.copy() for name, array in arrays.items()}, json.loads(json.dumps(skeleton)))


def learn(tables: Sequence[Refilled], turn: int) -> None:
    """A sample, and priorities for it: the same from all."""
    found = [table.sample(7) for table in tables]
    for sample in found:
        assert sample is not None and found[0] is not None
        alike(found[0].rollouts[0], sample.rollouts[0])
        np.testing.assert_array_equal(found[0].keys, sample.keys)
        if sample.weights is not None:
            np.testing.assert_array_equal(found[0].weights, sample.weights)
    for table, sample in zip(tables, found, strict=True):
        assert sample is not None
        table.reprioritise(sample.keys, np.random.default_rng(turn).random(7) * (1 + turn))


def alike(one: Rollout, other: Rollout) -> None:
    for name in ("actions", "rewards", "terminated", "truncated", "first", "valid", "final_at"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("observations", "finals", "carry"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert mine.keys() == theirs.keys()
        for key in mine:
            np.testing.assert_array_equal(mine[key], theirs[key])


def same_memory(one: Refilled, other: Refilled) -> None:
    mine, theirs = one.table.store, other.table.store
    assert mine.columns().keys() == theirs.columns().keys()
    for name, column in mine.columns().items():
        assert mine.extent(name) == theirs.extent(name)
        there = np.arange(*mine.extent(name)) % len(column)
        np.testing.assert_array_equal(column[there], theirs.columns()[name][there])
    np.testing.assert_equal(written_and_read(mine.outline()), written_and_read(theirs.outline()))


@settings(max_examples=120, deadline=None)
@given(
    image=st.booleans(), stack=st.integers(1, 3), resets=st.booleans(), prioritised=st.booleans(),
    cut=st.sampled_from([transitions(), n_step(3), Sequences(2)]),
    lengths=st.lists(st.integers(2, 5), max_size=22), more=st.integers(1, 8), seed=st.integers(0, 99),
)  # fmt: skip
def test_a_table_that_was_filled_again_goes_on_as_the_one_that_was_not(
    image, stack, resets, prioritised, cut, lengths, more, seed
):
    log, rng = Log(), np.random.default_rng(seed)
    worlds = [Worlds(actor, 2, seed, image, stack, resets) for actor in range(3)]
    one, other = made(log, cut, prioritised, seed), made(log, cut, prioritised, seed + 1)
    for turn, length in enumerate(lengths):
        give([one], log, worlds[rng.integers(3)].rollout(length))
        if turn % 2:
            learn([one], turn)
    snapshot = written_and_read(one.snapshot())
    other.restore(snapshot)
    if lengths:
        same_memory(one, other)
    for turn in range(more):
        give([one, other], log, worlds[rng.integers(3)].rollout(3))
        learn([one, other], turn)
    same_memory(one, other)
    assert (one.table.inserted, one.table.sampled, one.waiting) == (
        other.table.inserted, other.table.sampled, other.waiting,
    )  # fmt: skip
    again = made(log, cut, prioritised, seed)  # what was filled again can be kept again
    again.restore(written_and_read(other.snapshot()))
    same_memory(one, again)


def test_what_is_kept_is_where_rollouts_stand_and_none_of_their_steps() -> None:
    log, world = Log(), Worlds(0, 2, 0, image=True)
    table = made(log, transitions(), False, 0, capacity=20)
    for _ in range(8):
        give([table], log, world.rollout(3))  # 6 steps each: the last three, and two of the one before
    snapshot = table.snapshot()
    assert snapshot["sources"] == ["part-0"] and snapshot["places"][:, 1].tolist() == [1012, 1015, 1018, 1021]
    assert snapshot["places"][:, 4].tolist() == [4, 5, 6, 7] and "columns" not in snapshot["table"]["store"]
    arrays, _ = tree.flatten(snapshot)
    assert sum(array.nbytes for array in arrays.values()) < 1_000


def test_priorities_come_into_force_with_the_next_sample_whatever_came_in_between() -> None:
    def after(first: str) -> Any:
        log, world = Log(), Worlds(0, 2, 0)
        table = made(log, transitions(), True, 0, capacity=12)
        give([table], log, world.rollout(5))
        sample = table.sample(4)
        assert sample is not None
        if first == "priorities":
            table.reprioritise(sample.keys, np.full(4, 50.0))
        give([table], log, world.rollout(2))
        if first == "steps":
            table.reprioritise(sample.keys, np.full(4, 50.0))
        found = table.sample(6)
        assert found is not None
        return found.keys.tolist(), found.weights.tolist()

    assert after("priorities") == after("steps")


def test_priorities_wait_while_nothing_can_be_picked_and_are_kept() -> None:
    log, world = Log(), Worlds(0, 2, 0)
    limit = SamplesPerInsert(1.0, least=1, slack=1)

    def table() -> Refilled:
        return Refilled(Table(transitions(), Prioritised(), limit=limit, rng=np.random.default_rng(0)), log.reread)

    one, other = table(), table()
    give([one], log, world.rollout(2))
    sample = one.sample(4)
    assert sample is not None and one.sample(4) is None
    one.reprioritise(sample.keys, np.array([9.0, 0.0, 0.0, 0.0]))
    assert one.sample(4) is None
    other.restore(written_and_read(one.snapshot()))
    give([one, other], log, world.rollout(2))
    mine, theirs = one.sample(4), other.sample(4)
    assert mine is not None and theirs is not None and mine.keys.tolist() == theirs.keys.tolist()
    with pytest.raises(ConfigError, match="a priority is a number"):
        one.reprioritise(mine.keys, np.full(4, np.nan))


@pytest.mark.parametrize("what", ["gone", "another"])
def test_a_rollout_that_is_not_in_the_log_any_more_is_named(what: str) -> None:
    log, world = Log(), Worlds(2, 2, 0)
    one, other = made(log, n_step(2), False, 0), made(log, n_step(2), False, 0)
    for _ in range(4):
        give([one], log, world.rollout(3))
    if what == "gone":
        del log.kept["part-2", 1003]
    else:
        log.kept["part-2", 1003] = log.kept["part-2", 1000]
    there = r"rollout \[2, 0, 2\] of 6 steps" if what == "gone" else r"rollout \[2, 0, 0\] of 6 steps"
    words = rf"needs rollout 1 of actor 2 \(epoch 0\) from part-2 at 1003, and the log has {there}"
    with pytest.raises(CheckpointError, match=words):
        other.restore(written_and_read(one.snapshot()))
    log.kept.clear()
    with pytest.raises(CheckpointError, match=r"needs rollout 0 of .* and the log has nothing there; was it trimmed"):
        other.restore(written_and_read(one.snapshot()))


def test_whole_rollouts_are_not_kept_so() -> None:
    with pytest.raises(ConfigError, match="only tables of steps"):
        Refilled(queue(3), Log().reread).snapshot()


def test_a_limit_that_is_lifted_holds_nobody_back_and_counts_on() -> None:
    lifted = [True]
    table = Table(transitions(), limit=Lifted(SamplesPerInsert(2.0, 6, 4), lambda: lifted[0]), capacity=100)
    plain = Table(transitions(), limit=Lifted(Free(), lambda: False))
    world = Worlds(0, 1, 0)
    for _ in range(4):
        assert table.insert(world.rollout(5)) and table.insert(world.rollout(5)) and table.sample(8) is not None
    lifted[0] = False
    assert not table.insert(world.rollout(5))  # 40 came, 6 of them to begin with, and 16 are used up
    assert table.sample(20) is not None and not table.insert(world.rollout(5)) and table.sample(30) is not None
    assert table.insert(world.rollout(5))
    assert plain.sample(1) is None and plain.insert(world.rollout(1)) and plain.sample(1) is not None
