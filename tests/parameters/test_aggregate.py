from __future__ import annotations

import math
import statistics
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.core.errors import ConfigError
from millstream.parameters import aggregate
from millstream.parameters.aggregate import average, federated, find, median, trimmed_mean, weighted

LARGEST = float(np.finfo(np.float32).max)
numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)
weights = st.floats(1e-300, 1e300)


@st.composite
def stacks(draw: Any) -> np.ndarray:
    clients, size = draw(st.integers(1, 9)), draw(st.integers(0, 5))
    rows = draw(st.lists(st.lists(numbers, min_size=size, max_size=size), min_size=clients, max_size=clients))
    return np.array(rows, np.float32).reshape(clients, size)


def exact_mean(column: np.ndarray, weights: list[float] | None = None) -> float:
    """In fractions: no rounding until the end."""
    shares = [Fraction(weight) for weight in weights or [1.0] * len(column)]
    total = sum(share * Fraction(float(value)) for share, value in zip(shares, column, strict=True))
    return float(np.float32(float(total / sum(shares))))


def close(found: np.ndarray, expected: list[float], scale: np.ndarray) -> bool:
    """To the last digit of float32, and to float64's of the largest number that was summed."""
    assert found.dtype == np.float32
    slack = 1.2e-7 * np.abs(np.array(expected)) + 1e-14 * scale + 1e-44
    return bool((np.abs(found.astype(float) - np.array(expected)) <= slack).all())


def size_of(stack: np.ndarray) -> np.ndarray:
    return np.abs(stack.astype(float)).max(axis=0)


@given(stacks())
def test_an_average_is_the_exact_mean(stack: np.ndarray) -> None:
    assert close(average(stack), [exact_mean(column) for column in stack.T], size_of(stack))


@given(stacks(), st.data())
def test_a_weighted_mean_is_the_exact_one_whatever_the_weights_size(stack: np.ndarray, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(weights, min_size=len(stack), max_size=len(stack)))
    expected = [exact_mean(column, chosen) for column in stack.T]
    assert close(weighted(stack, chosen), expected, size_of(stack))
    assert np.array_equal(federated(stack, chosen), weighted(stack, chosen))


@given(stacks())
def test_a_median_is_the_one_of_the_standard_library(stack: np.ndarray) -> None:
    expected = [statistics.median(float(value) for value in column) for column in stack.T]
    assert close(median(stack), expected, size_of(stack))


@given(stacks(), st.floats(0, 0.49))
def test_a_trimmed_mean_leaves_out_as_many_at_either_end(stack: np.ndarray, share: float) -> None:
    left_out = math.floor(share * len(stack) + 1e-9)
    kept = np.sort(stack, axis=0)[left_out : len(stack) - left_out]
    assert close(trimmed_mean(stack, share=share), [exact_mean(column) for column in kept.T], size_of(stack))


@given(stacks())
def test_nothing_trimmed_is_the_average_and_all_but_the_middle_is_the_median(stack: np.ndarray) -> None:
    scale = size_of(stack)
    assert close(trimmed_mean(stack, share=0.0), average(stack).tolist(), scale)
    middle = (len(stack) - 1) // 2 / len(stack)
    assert close(trimmed_mean(stack, share=middle), median(stack).tolist(), scale)


def test_a_share_that_is_not_exact_in_binary_still_counts_whole_clients() -> None:
    stack = np.arange(100, dtype=np.float32)[:, None]
    stack[71:] = 1e6  # the 29 largest; a floor of 28.999999999999996 would leave one in
    assert trimmed_mean(stack, share=0.29)[0] == np.mean(np.arange(29, 71))


@pytest.mark.parametrize("aggregation", [median, partial(trimmed_mean, share=0.4)])
def test_two_liars_of_five_move_a_robust_aggregate_no_further_than_the_honest_ones(aggregation: Any) -> None:
    rng = np.random.default_rng(0)
    honest = rng.normal(size=(3, 50)).astype(np.float32)
    lies = np.array([[LARGEST] * 50, [-LARGEST] * 50], np.float32) * rng.choice([-1, 1], (2, 50)).astype(np.float32)
    found = aggregation(np.concatenate([honest, lies]), None)
    assert (honest.min(axis=0) <= found).all() and (found <= honest.max(axis=0)).all()


@pytest.mark.parametrize("name", aggregate.AGGREGATIONS)
def test_the_largest_floats_do_not_overflow(name: str) -> None:
    stack = np.full((4, 3), LARGEST, np.float32)
    assert np.array_equal(find(name)(stack, np.array([1.0, 2.0, 3.0, 4.0])), stack[0])


def test_the_largest_weights_do_not_overflow() -> None:
    stack = np.array([[1], [4], [7]], np.float32)
    assert weighted(stack, [1.5e308, 1.5e308, 1.5e308]).tolist() == [4]


def test_many_small_numbers_are_not_lost_beside_a_large_one() -> None:
    stack = np.ones((1001, 1), np.float32)
    stack[0] = 2.0**25  # in float32 every 1 that is added to it would vanish
    assert average(stack)[0] == np.float32((2.0**25 + 1000) / 1001)
    assert weighted(stack, np.ones(1001))[0] == pytest.approx((2.0**25 + 1000) / 1001, rel=1e-7)


@pytest.mark.parametrize("name", ["median", "trimmed_mean"])
def test_wide_stacks_are_sorted_piece_by_piece_with_the_same_result(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = np.random.default_rng(1).normal(size=(7, 101)).astype(np.float32)
    whole = find(name)(stack, None)
    monkeypatch.setattr(aggregate, "PIECE", 10)
    assert np.array_equal(find(name)(stack, None), whole)


@pytest.mark.parametrize("name", aggregate.AGGREGATIONS)
def test_the_stack_stays_as_it_was(name: str) -> None:
    stack = np.random.default_rng(2).normal(size=(5, 8)).astype(np.float32)
    before = stack.copy()
    find(name)(stack, np.arange(1.0, 6.0))
    assert np.array_equal(stack, before)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ([1, 2], "as many weights"),
        ([1, 2, math.nan], "finite"),
        ([1, 2, math.inf], "finite"),
        ([1, 2, -1], "not negative"),
        ([0, 0, 0], "not all zero"),
    ],
)
def test_weights_that_mean_nothing_are_refused(bad: list[float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        weighted(np.ones((3, 2), np.float32), bad)


def test_a_weight_of_zero_is_silence_but_a_count_of_zero_samples_is_a_mistake() -> None:
    stack = np.array([[1, 1], [5, 7]], np.float32)
    assert weighted(stack, [0, 3]).tolist() == [5, 7]
    with pytest.raises(ConfigError, match="above zero"):
        federated(stack, [0, 3])


@pytest.mark.parametrize("name", aggregate.AGGREGATIONS)
@pytest.mark.parametrize("shape", [(0, 3), (3,), (1, 2, 3)])
def test_what_is_no_stack_is_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"\[clients, size\]"):
        find(name)(np.zeros(shape, np.float32), np.ones(shape[0]))


@pytest.mark.parametrize("share", [-0.1, 0.5, math.nan])
def test_a_share_that_leaves_nobody_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match=r"below 0\.5"):
        trimmed_mean(np.zeros((3, 1), np.float32), share=share)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean median"):
        find("medain")
    with pytest.raises(ConfigError, match="unknown aggregation"):
        find(["average"])  # type: ignore[arg-type]
    assert find(average) is average
