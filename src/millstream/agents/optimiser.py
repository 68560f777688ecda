"""Clipping and Adam over one flat vector, for NumPy arrays and tensors alike."""

from __future__ import annotations

import math
from dataclasses import dataclass

from millstream.agents.maths import namespace
from millstream.core.data import Array, Gradients


@dataclass
class Adam:
    """The moments of Kingma and Ba (2015)."""

    first: Array
    second: Array
    count: int = 0

    @classmethod
    def fresh(cls, weights: Array) -> Adam:
        """Nothing seen yet."""
        xp = namespace(weights)
        return cls(xp.zeros_like(weights), xp.zeros_like(weights))


def clip(gradients: Gradients, limit: float) -> tuple[Gradients, float]:
    """Gradients of at most this norm, and the norm that they had. Zero means no limit."""
    norm = float((gradients @ gradients) ** 0.5)
    if limit and limit < norm < math.inf:
        gradients = gradients * (limit / norm)
    return gradients, norm


def adam(
    weights: Array,
    gradients: Gradients,
    moments: Adam,
    rate: float,
    decay: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-5,
) -> None:
    """One step, in place."""
    moments.count += 1
    beta, gamma = decay
    moments.first *= beta
    moments.first += (1 - beta) * gradients
    moments.second *= gamma
    moments.second += (1 - gamma) * gradients * gradients
    scale = (1 - gamma**moments.count) ** 0.5
    weights -= (rate * scale / (1 - beta**moments.count)) * (moments.first / (moments.second**0.5 + epsilon * scale))
