from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.learner import batches


def batch(rows: int, **columns: np.ndarray) -> dict[str, np.ndarray]:
    return {"actions": np.zeros((rows, 5)), **columns}


@given(st.integers(1, 70), st.integers(1, 80), st.integers(1, 3), st.integers(0, 9))
def test_every_row_comes_once_an_epoch_and_none_is_left_out(rows: int, size: int, epochs: int, seed: int) -> None:
    parts = list(batches.minibatches(batch(rows), size, epochs, np.random.default_rng(seed)))
    assert len(parts) % epochs == 0
    each = len(parts) // epochs
    for epoch in range(epochs):
        seen = np.concatenate(parts[epoch * each : (epoch + 1) * each])
        assert sorted(seen.tolist()) == list(range(rows))
    assert all(min(size, rows) <= len(part) < 2 * size + rows * (size > rows) for part in parts)


def test_epochs_have_orders_of_their_own_and_a_seed_repeats_them() -> None:
    one = [part.tolist() for part in batches.minibatches(batch(64), 64, 2, np.random.default_rng(0))]
    two = [part.tolist() for part in batches.minibatches(batch(64), 64, 2, np.random.default_rng(0))]
    assert one == two and one[0] != one[1]


def test_a_remainder_joins_the_last() -> None:
    assert [len(part) for part in batches.minibatches(batch(10), 4, 1, np.random.default_rng(0))] == [4, 6]


@given(st.integers(1, 3000), st.integers(1, 9), st.booleans())
def test_shards_cover_the_minibatch_in_order_and_their_shares_are_one(rows: int, shards: int, sequences: bool) -> None:
    order = np.random.default_rng(0).permutation(rows)
    parts = batches.cut(order, shards, 1 if sequences else batches.GRAIN)
    assert np.array_equal(np.concatenate(parts), order) and all(len(part) for part in parts)
    assert len(parts) <= shards
    assert sum(batches.shares(batch(rows), parts)) == pytest.approx(1)


def test_a_small_minibatch_stays_whole_but_sequences_are_never_small() -> None:
    assert len(batches.cut(np.arange(511), 4, 256)) == 1
    assert len(batches.cut(np.arange(512), 4, 256)) == 2
    assert len(batches.cut(np.arange(3), 4, 1)) == 3


def test_a_shard_weighs_by_the_steps_that_count() -> None:
    valid = np.array([[True, True, True], [True, False, False]])
    assert batches.shares(batch(2, valid=valid), [np.array([0]), np.array([1])]) == [0.75, 0.25]


@pytest.mark.parametrize(("steps", "rows"), [(20, 4), (24, 4), (3, 1), (10_000, 8)])
def test_a_minibatch_of_sequences_is_counted_in_steps(steps: int, rows: int) -> None:
    assert batches.rows_of_a_minibatch(batch(8), steps, sequences=True) == rows
    assert batches.rows_of_a_minibatch(batch(8, rewards=np.zeros((8, 5))), steps, sequences=True) == rows


def test_a_minibatch_is_never_larger_than_the_batch() -> None:
    assert batches.rows_of_a_minibatch(batch(8), 100, sequences=False) == 8
    assert batches.rows_of_a_minibatch(batch(8), 3, sequences=False) == 3


def test_taken_rows_are_those_of_every_column() -> None:
    taken = batches.take({"a": np.arange(4), "b": np.arange(8).reshape(4, 2)}, np.array([3, 1]))
    assert taken["a"].tolist() == [3, 1] and taken["b"].tolist() == [[6, 7], [2, 3]]
