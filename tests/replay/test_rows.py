"""Rows are written and read in C and in NumPy: the same bits."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.core import native
from millstream.replay import reading
from millstream.replay.cut import Sequences, n_step, transitions
from millstream.replay.pool import Pool
from millstream.replay.select import Prioritised, Uniform
from tests.replay.making import Worlds


@pytest.mark.skipif(native.LIBRARY is None, reason="no compiler was there when Millstream was installed")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cut=st.sampled_from([transitions(), n_step(3), Sequences(2)]), image=st.booleans(), stack=st.integers(1, 3),
    prioritised=st.booleans(), resets=st.booleans(), turns=st.integers(1, 12), seed=st.integers(0, 50),
    shards=st.integers(1, 3),
)  # fmt: skip
def test_in_c_and_in_numpy_a_pool_holds_and_gives_the_same(
    monkeypatch, cut, image, stack, prioritised, resets, turns, seed, shards
):
    found = []
    for library in (native.LIBRARY, None):
        with monkeypatch.context() as patch:
            patch.setattr(native, "LIBRARY", library)
            select = Prioritised() if prioritised else Uniform()
            pool = Pool(cut, select, capacity=20, shards=shards, rng=np.random.default_rng(seed))
            world = Worlds(0, 2, seed, image, stack, resets)
            for _ in range(turns):
                pool.insert(world.rollout(3))
            found.append((pool.sample(40), pool.memory.records.tobytes()))
    (one, rows), (other, others) = found
    assert rows == others
    np.testing.assert_array_equal(one.keys, other.keys)
    np.testing.assert_array_equal(one.weights, other.weights)
    mine, theirs = one.rollouts[0], other.rollouts[0]
    for name in ("actions", "rewards", "terminated", "truncated", "first", "valid", "final_at"):
        np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
    for group in ("observations", "finals", "carry"):
        for name, array in getattr(mine, group).items():
            np.testing.assert_array_equal(array, getattr(theirs, group)[name])


def test_many_frames_are_copied_by_two_threads_and_are_the_same(monkeypatch):
    rng = np.random.default_rng(0)
    frames, places = rng.integers(0, 255, (50, 3, 2)).astype(np.uint8), rng.integers(0, 50, (2, 33))
    monkeypatch.setattr(reading, "_MANY", 0)
    monkeypatch.setattr(reading, "_FEW", 24)
    np.testing.assert_array_equal(reading.taken(frames, places), frames[places])


def test_where_arrays_do_not_tell_how_they_lie_numpy_serves(monkeypatch):
    monkeypatch.setattr(native, "TOLD", 0)
    pool, world = Pool(transitions(), capacity=20, shards=2, rng=np.random.default_rng(0)), Worlds(0, 2, 0)
    assert pool.insert(world.rollout(3)) and pool.sample(4).rollouts[0].valid.all()


def test_it_is_found_where_arrays_tell_how_they_lie():
    array = np.arange(6.0).reshape(2, 3)
    assert native.TOLD == native.where_told() > 0
    assert ctypes.c_void_p.from_address(id(array) + native.TOLD).value == array.ctypes.data
