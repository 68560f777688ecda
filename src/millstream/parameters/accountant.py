"""How much privacy was spent: Renyi differential privacy of the Gaussian mechanism under Poisson sampling.

A round adds N(0, sigma^2) noise to a sum to which one client adds at most 1, each client being drawn with chance q. Its
Renyi divergence of order alpha is log A / (alpha - 1), with A = E[r^alpha] over z ~ N(0, sigma^2) and
r = 1 - q + q exp((2 z - 1) / (2 sigma^2)): Mironov, Talwar and Zhang (2019), who show that the other direction is never
worse. We integrate that definition: one formula serves whole and fractional orders, and every term is positive. The
trapezoid rule is exact to rounding: the integrand is analytic in a strip of pi sigma^2 and falls like a Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from millstream.core.errors import ConfigError

ORDERS = tuple(1 + 2 ** (step / 16) for step in range(-80, 161))
"""From 1.03 to 1025, evenly in the logarithm of alpha - 1."""
_REACH = 12.0
"""Standard deviations beyond which a Gaussian holds nothing that float64 could show."""
_POINTS = 200_000
"""More than any noise worth adding needs; with less noise, sampling is not counted as a help."""
_LARGE = 30.0
"""Exponents above it are kept as logarithms."""


class Accountant:
    """Adds up what rounds have spent. Nothing that was released can be taken back, so nothing is ever subtracted."""

    def __init__(self, orders: Sequence[float] = ORDERS):
        if not orders or not all(1 < order < math.inf for order in orders):
            raise ConfigError(f"Renyi orders are above 1 and finite, got {list(orders)}")
        self.orders = tuple(float(order) for order in orders)
        self._spent: dict[tuple[float, float], int] = {}

    @property
    def steps(self) -> int:
        """Rounds so far."""
        return sum(list(self._spent.values()))

    def step(self, noise_multiplier: float, sampling_rate: float = 1.0, count: int = 1) -> None:
        """So many rounds more."""
        if not (math.isfinite(noise_multiplier) and noise_multiplier >= 0):
            raise ConfigError(f"a noise multiplier is at least 0 and finite, got {noise_multiplier!r}")
        if not 0 < sampling_rate <= 1:
            raise ConfigError(f"a sampling rate is above 0 and at most 1, got {sampling_rate!r}")
        if count < 0:
            raise ConfigError(f"a count of rounds is at least 0, got {count!r}")
        mechanism = (float(noise_multiplier), float(sampling_rate))
        self._spent[mechanism] = self._spent.get(mechanism, 0) + int(count)

    def epsilon(self, delta: float) -> float:
        """The epsilon that holds with this delta: the best over the orders, by Canonne, Kamath and Steinke (2020)."""
        if not 0 < delta < 1:
            raise ConfigError(f"delta is above 0 and below 1, got {delta!r}; take one far below 1 / clients")
        if not self.steps:
            return 0.0
        orders, spent = np.array(self.orders), np.zeros(len(self.orders))
        for (noise, rate), count in list(self._spent.items()):  # a copy: another thread may step meanwhile
            spent += count * np.array(divergences(noise, rate, self.orders))
        found = spent + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
        return max(0.0, float(found.min()))

    def history(self) -> list[list[float]]:
        """[noise multiplier, sampling rate, rounds] of each mechanism; fits JSON."""
        return [[noise, rate, count] for (noise, rate), count in self._spent.items()]

    def add(self, history: Iterable[Sequence[float]]) -> None:
        """What another accountant has seen was spent as well."""
        for noise, rate, count in history:
            self.step(noise, rate, int(count))


@lru_cache(maxsize=256)
def divergences(noise_multiplier: float, sampling_rate: float, orders: tuple[float, ...]) -> tuple[float, ...]:
    """The Renyi divergence of one round at each order."""
    return tuple(divergence(noise_multiplier, sampling_rate, order) for order in orders)


def divergence(noise_multiplier: float, sampling_rate: float, order: float) -> float:
    """The Renyi divergence of one round."""
    if noise_multiplier == 0:
        return math.inf
    sigma, q = noise_multiplier, sampling_rate
    whole = order / (2 * sigma * sigma)  # without sampling; sampling only ever lowers it
    step = min(sigma / 4, sigma * sigma / 2)
    span = order + 2 * _REACH * sigma
    if q == 1 or span / step > _POINTS:
        return whole
    z = -_REACH * sigma + step * np.arange(math.ceil(span / step) + 1)
    log_r, gain = _ratio(z, sigma, q)
    density = -z * z / (2 * sigma * sigma) - math.log(sigma * math.sqrt(2 * math.pi))
    excess = _log_sum(density + _log_excess(log_r, gain, order)) + math.log(step)
    return min(float(np.logaddexp(0.0, excess)) / (order - 1), whole)


def _ratio(z: np.ndarray, sigma: float, q: float) -> tuple[np.ndarray, np.ndarray]:
    """log r and r - 1, each with all its digits near r = 1."""
    x = (2 * z - 1) / (2 * sigma * sigma)
    near = q * np.expm1(np.minimum(x, 1.0))
    far = np.logaddexp(math.log1p(-q), math.log(q) + x)
    return np.where(x < 1, np.log1p(near), far), np.where(x < 1, near, np.expm1(np.minimum(far, _LARGE)))


def _log_excess(log_r: np.ndarray, gain: np.ndarray, order: float) -> np.ndarray:
    """log(r^alpha - 1 - alpha (r - 1)): E[r] = 1, so it sums to A - 1, and keeps its digits when q is small."""
    power = order * log_r
    with np.errstate(divide="ignore"):  # r = 1 exactly adds nothing: log 0
        low = np.log(np.maximum(np.expm1(np.minimum(power, _LARGE)) - order * gain, 0.0))
    top = np.maximum(power, _LARGE)
    high = top + np.log1p((order - 1) * np.exp(-top) - order * np.exp(top / order - top))
    return np.where(power > _LARGE, high, low)


def _log_sum(terms: np.ndarray) -> float:
    top = float(terms.max())
    return top + math.log(float(np.exp(terms - top).sum()))
