import math

import pytest

from millstream.telemetry.words import brief, counted, duration, number, sparkline


def test_a_sparkline_rises_with_its_values():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([7, 0], 8) == "█▁"


def test_a_sparkline_never_exceeds_its_room():
    assert len(sparkline(list(range(1000)), 10)) == 10


def test_a_sparkline_survives_what_is_not_a_number():
    assert sparkline([], 5) == ""
    assert sparkline([math.nan], 5) == ""
    assert sparkline([1.0, math.inf, 1.0], 5) == "▄▄"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (-0.0, "0"), (0.00412, "0.0041"), (-1.234, "-1.23"), (412.34, "412.3"), (12345.6, "12,345.6"),
     (1.5e7, "1.50e+07"), (2e-6, "2.00e-06"), (math.nan, "nan"), (None, "None")],
)  # fmt: skip
def test_numbers_have_the_figures_that_mean_something(value, text):
    assert number(value) == text


def test_one_is_not_several():
    assert (counted(1, "episode"), counted(0, "episode"), counted(1200, "step")) == (
        "1 episode", "0 episodes", "1,200 steps",
    )  # fmt: skip


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3723, "1:02:03"), (-5, "0:00")])
def test_durations_read_like_a_clock(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(999, "999"), (492_000, "492k"), (1e6, "1M"), (2.5e9, "2.5G")])
def test_counts_are_brief(count, text):
    assert brief(count) == text
