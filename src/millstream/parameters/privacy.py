"""Differential privacy for federated rounds: what a round tells of one client is bounded, and the bound is counted.

Each client's delta is scaled down to at most `clip` in L2 norm and counted with a weight of at most 1, so that one
client moves the sum by at most `clip`, whatever it sends. Noise of `noise_multiplier * clip` is added to the sum.
NumPy's generator is not made for secrets, and float64 noise has gaps: see docs/rooms/parameters.md for what holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator, default_rng

from millstream.core.data import Array
from millstream.core.errors import ConfigError


@dataclass(frozen=True)
class Privacy:
    """How federated rounds are kept private."""

    clip: float
    """The largest L2 norm with which a client's delta enters the sum."""
    noise_multiplier: float
    """Standard deviation of the noise on the sum, in units of `clip`; 0 only clips, and epsilon is infinite."""
    sampling_rate: float = 1.0
    """The chance with which the server draws each client for a round; below 1, rounds are opened by `begin_round`."""
    max_samples: float = 1.0
    """A client weighs min(samples / max_samples, 1): never more than 1, and by default always 1."""
    delta: float = 1e-5
    """The delta for which the statistics report epsilon; far below 1 / clients."""
    rng: Generator = field(default_factory=default_rng, repr=False)
    """Draws clients and noise. Seed it in tests only: noise that can be repeated can be subtracted."""

    def __post_init__(self) -> None:
        checks = {
            "clip is above 0 and finite": 0 < self.clip < math.inf,
            "noise_multiplier is at least 0 and finite": 0 <= self.noise_multiplier < math.inf,
            "sampling_rate is above 0 and at most 1": 0 < self.sampling_rate <= 1,
            "max_samples is above 0 and finite": 0 < self.max_samples < math.inf,
            "delta is above 0 and below 1": 0 < self.delta < 1,
        }
        wrong = [words for words, holds in checks.items() if not holds]
        if wrong:
            raise ConfigError(f"{'; '.join(wrong)}; got {self}")

    @property
    def draws(self) -> bool:
        """Whether chance decides who takes part."""
        return self.sampling_rate < 1

    def weights(self, samples: Array) -> np.ndarray:
        """What each client weighs in the sum: at most 1."""
        return np.minimum(np.asarray(samples, np.float64) / self.max_samples, 1.0)

    def draw(self, clients: list[str]) -> frozenset[str]:
        """Each client by a chance of its own (Poisson sampling, as the accountant assumes); there may be none."""
        chances = self.rng.random(len(clients))
        return frozenset(client for client, chance in zip(clients, chances, strict=True) if chance < self.sampling_rate)

    def release(self, total: np.ndarray, clients: float) -> np.ndarray:
        """The noisy mean. It is divided by a number fixed beforehand: the true weight of a round is private too."""
        noise = self.rng.normal(0.0, self.noise_multiplier * self.clip, total.shape)
        with np.errstate(over="ignore"):  # the server refuses what is not finite
            return ((total + noise) / clients).astype(np.float32)


def clipped_sum(stack: Array, weights: Array, clip: float) -> np.ndarray:
    """The sum of the rows [clients, size], each at most `clip` long, times its weight; float64."""
    stack = np.asarray(stack)
    total, part = np.zeros(stack.shape[1]), np.empty(stack.shape[1])
    for row, weight in zip(stack, np.asarray(weights, np.float64), strict=True):
        part[:] = row
        part *= weight * clip_factor(part, clip)
        total += part
    return total


def clip_factor(vector: np.ndarray, clip: float) -> float:
    """By how much a vector of float64 is scaled down: its direction stays."""
    norm = math.sqrt(float(vector @ vector))
    return min(1.0, clip / norm) if norm else 1.0
