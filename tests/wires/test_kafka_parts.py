"""Rollouts cut for a wire and put together again; no broker is needed for that."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("confluent_kafka")

from millstream.core.codec import decode, encode, paths
from millstream.core.data import Rollout, Stamp, Version
from millstream.core.errors import CodecError, TooLarge
from millstream.wires.kafka.gathering import Gathering, Lives
from millstream.wires.kafka.notes import Note
from millstream.wires.kafka.parts import cut, join, slots_of


def random_rollout(seed: int, steps: int = 5, slots: int = 7, shape: tuple[int, ...] = (3, 2)) -> Rollout:
    """Everything that a rollout can have, endings included."""
    rng = np.random.default_rng(seed)
    terminated = rng.random((steps, slots)) < 0.2
    at = np.argwhere(terminated)
    return Rollout(
        observations={"image": rng.integers(0, 255, (steps + 1, slots, *shape), np.uint8)},
        finals={"image": rng.integers(0, 255, (len(at), *shape), np.uint8)},
        final_at=at,
        actions=rng.integers(0, 4, (steps, slots)),
        rewards=rng.normal(size=(steps, slots)).astype(np.float32),
        terminated=terminated,
        truncated=np.zeros((steps, slots), bool),
        first=rng.random((steps + 1, slots)) < 0.2,
        valid=rng.random((steps, slots)) < 0.9,
        carry={"memory": rng.normal(size=(slots, 4)).astype(np.float32)},
        extras={"log_prob": rng.normal(size=(steps, slots)).astype(np.float32)},
        stamp=Stamp("x", 3, 1, seed, Version(0, 2), 1.5),
    )


def assert_same(one: Rollout, other: Rollout) -> None:
    assert one.stamp == other.stamp
    left, right = paths(one), paths(other)
    assert left.keys() == right.keys()
    for path, array in left.items():
        assert array.dtype == right[path].dtype
        np.testing.assert_array_equal(array, right[path], err_msg=path)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1 << 30), st.integers(1, 6), st.integers(1, 9), st.integers(2500, 6000))
def test_cut_and_join_are_inverse(seed, steps, slots, limit):
    rollout = random_rollout(seed, steps, slots)
    parts = cut(rollout, limit)
    assert all(len(part) <= limit for part in parts)
    assert_same(join([decode(part) for part in parts]), rollout)


def test_a_small_rollout_is_one_part_as_it_always_was():
    rollout = random_rollout(1)
    assert cut(rollout, 1 << 20) == [encode(rollout)]


def test_one_slot_that_is_too_large_is_refused_with_what_to_do():
    with pytest.raises(TooLarge, match=r"lower actor\.unroll"):
        cut(random_rollout(1, steps=50), 2000)


def test_parts_of_different_rollouts_do_not_fit():
    one, other = (slots_of(random_rollout(seed), start, start + 2) for seed, start in ((1, 0), (2, 2)))
    with pytest.raises(CodecError, match="do not fit"):
        join([one, other])


def note(sequence: int, part: int = 0, parts: int = 1, epoch: int = 0, actor: int = 0) -> Note:
    return Note("x", actor, epoch, sequence, 10, part, parts)


def test_an_unfinished_rollout_of_a_dead_actor_is_forgotten_when_another_lives_in_its_place():
    gathering = Gathering()
    assert gathering.add(note(5, 0, 2), 10, "a") is None
    assert gathering.oldest() == 10
    assert gathering.add(note(0, epoch=7), 11, "b").in_order() == ["b"]
    assert (gathering.oldest(), gathering.incomplete) == (None, 1)


def test_parts_that_were_sent_again_make_one_rollout():
    gathering = Gathering()
    gathering.add(note(5, 0, 2), 10, "old")
    gathering.add(note(5, 0, 2), 11, "new")
    whole = gathering.add(note(5, 1, 2), 12, "end")
    assert (whole.in_order(), whole.offset, gathering.incomplete) == (["new", "end"], 10, 0)


def test_what_a_stranger_left_unfinished_takes_bounded_room():
    gathering = Gathering()
    for epoch in range(1000):
        gathering.add(note(0, 0, 2, epoch=epoch, actor=epoch), epoch, b"")
    assert gathering.oldest() >= 900


def test_a_sequence_far_ahead_hides_none_of_those_before_it():
    lives = Lives()
    lives.reach((0, 0), 3)
    lives.add((0, 0), 1000)
    assert lives.last((0, 0)) == 3
    assert [sequence for sequence in (3, 4, 999, 1000, 1001) if lives.know(note(sequence))] == [3, 1000]


@settings(max_examples=200)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=30))
def test_lives_know_what_a_set_would_know(moves):
    lives, model = Lives(), set()
    for reach, sequence in moves:
        if reach:
            lives.reach((0, 0), sequence)
            model |= set(range(sequence + 1))
        else:
            lives.add((0, 0), sequence)
            model.add(sequence)
        lives = Lives(lives.rows())  # as a checkpoint keeps it
        assert {number for number in range(14) if lives.know(note(number))} == model
        assert lives.last((0, 0)) == min(set(range(14)) - model) - 1
