"""Numbers that stand for many runs or episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Summary:
    """How good a policy is, and how sure that is."""

    episodes: int
    mean: float
    iqm: float
    low: float
    high: float


def iqm(values: Sequence[float]) -> float:
    """The mean of the middle half: robust like a median, precise like a mean. Borders count by their share."""
    ordered = np.sort(np.asarray(values, np.float64))
    cut, n = len(ordered) / 4, len(ordered)
    edges = np.arange(n + 1, dtype=np.float64)
    weights = np.clip(np.minimum(edges[1:], n - cut) - np.maximum(edges[:-1], cut), 0, 1)
    return float(np.average(ordered, weights=weights))


def bootstrap(
    values: Sequence[float], confidence: float = 0.95, draws: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """The interval of the mean, by drawing again from the values."""
    data = np.asarray(values, np.float64)
    rng, n, tail = np.random.default_rng(seed), len(data), (1 - confidence) / 2
    means = [data[rng.integers(0, n, n)].mean() for _ in range(draws)]  # one at a time: n may be large
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def summarise(values: Sequence[float]) -> Summary:
    """Mean, IQM and the 95 % bootstrap interval of the mean."""
    low, high = bootstrap(values)
    return Summary(len(values), float(np.mean(values)), iqm(values), low, high)
