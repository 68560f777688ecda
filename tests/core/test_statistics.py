from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.core.statistics import bootstrap, iqm, summarise

values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


def slow_iqm(numbers: list[float]) -> float:
    """The definition by hand: each value four times, a quarter of the list cut from each end, the mean of the rest."""
    fine = sorted(number for number in numbers for _ in range(4))
    middle = fine[len(numbers) : -len(numbers)]
    return sum(middle) / len(middle)


@given(values)
def test_the_iqm_is_the_mean_of_the_middle_half(numbers: list[float]) -> None:
    assert iqm(numbers) == pytest.approx(slow_iqm(numbers), rel=1e-9, abs=1e-6)


@pytest.mark.parametrize(
    ("numbers", "answer"),
    [
        ([7], 7),
        ([1, 3], 2),
        ([1, 2, 30], (0.25 * 1 + 2 + 0.25 * 30) / 1.5),
        ([0, 1, 2, 100], 1.5),
        ([5, 8, 4, 38, 8, 6, 9, 7, 7, 3, 1, 6], 6.5),  # the worked example of Wikipedia, n divisible by 4
        ([1, 3, 5, 7, 9, 11, 13, 15, 17], 9),  # and the one where it is not
    ],
)
def test_worked_examples_of_the_iqm(numbers: list[float], answer: float) -> None:
    assert iqm(numbers) == pytest.approx(answer)


@settings(max_examples=25)
@given(values)
def test_a_summary_is_ordered_and_inside_what_was_seen(numbers: list[float]) -> None:
    found = summarise(numbers)
    slack = 1e-9 * max(map(abs, numbers)) + 1e-9
    assert found.episodes == len(numbers) and found.mean == pytest.approx(np.mean(numbers), abs=slack)
    assert min(numbers) - slack <= found.low <= found.high <= max(numbers) + slack


def test_the_interval_is_that_of_the_mean() -> None:
    sample = np.random.default_rng(3).normal(10, 2, 400)
    low, high = bootstrap(sample.tolist())
    error = sample.std() / 20
    assert low == pytest.approx(sample.mean() - 1.96 * error, abs=0.3 * error)
    assert high == pytest.approx(sample.mean() + 1.96 * error, abs=0.3 * error)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(100):
        low, high = bootstrap(rng.exponential(1.0, 50).tolist(), 0.9, draws=200, seed=trial)
        covered += low <= 1.0 <= high
    assert 80 <= covered <= 97


def test_the_same_values_give_the_same_interval() -> None:
    sample = np.random.default_rng(1).normal(size=20).tolist()
    assert bootstrap(sample) == bootstrap(sample) != bootstrap(sample, seed=1)


def test_values_that_agree_leave_no_doubt() -> None:
    assert summarise([500.0] * 20) == summarise([500.0] * 20)
    assert (summarise([500.0] * 20).low, summarise([500.0] * 20).high) == (500, 500)


def test_many_episodes_need_little_memory() -> None:
    many = [1.0] * 100_000
    tracemalloc.start()
    try:
        bootstrap(many, draws=100)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
