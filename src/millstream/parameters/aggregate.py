"""One vector out of many: what the pushes of a round come to. Vectors stand in a stack [clients, size].

Float32 comes in and goes out; sums are kept in float64, so that the order of many clients does not show.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from millstream.core.data import Array
from millstream.core.errors import ConfigError, UnknownName

Aggregate: TypeAlias = Callable[..., np.ndarray]
"""`(stack [clients, size], weights [clients]) -> [size]`."""
PIECE = 32_768
"""Columns that are sorted at a time, so that a sort of many clients stays small beside the stack."""


def average(stack: Array, weights: Array | None = None) -> np.ndarray:
    """The mean; everyone counts the same, whatever the weights say."""
    stack = _checked(stack)
    return np.asarray(np.add.reduce(stack, axis=0, dtype=np.float64) / len(stack), np.float32)


def weighted(stack: Array, weights: Array) -> np.ndarray:
    """The mean by weights, which are finite, not negative, and not all zero."""
    stack = _checked(stack)
    shares = _shares(weights, len(stack))
    total, part = np.zeros(stack.shape[1]), np.empty(stack.shape[1])
    for row, share in zip(stack, shares, strict=True):  # row by row: no float64 copy of the whole stack
        np.multiply(row, share, out=part, dtype=np.float64)
        total += part
    return total.astype(np.float32)


def federated(stack: Array, weights: Array) -> np.ndarray:
    """Federated averaging (McMahan et al. 2017): the mean of deltas by how many samples each client learnt from."""
    samples = np.asarray(weights, np.float64)
    if not (samples > 0).all():
        raise ConfigError(f"sample counts are above zero, got {samples.tolist()}; leave out clients without samples")
    return weighted(stack, samples)


def median(stack: Array, weights: Array | None = None) -> np.ndarray:
    """The middle of each coordinate: fewer than half of the clients cannot carry it away. Weights are not heard."""
    stack = _checked(stack)
    return _middle(stack, (len(stack) - 1) // 2)


def trimmed_mean(stack: Array, weights: Array | None = None, share: float = 0.1) -> np.ndarray:
    """The mean of each coordinate without this share of clients at either end. Weights are not heard."""
    if not 0 <= share < 0.5:
        raise ConfigError(f"the share trimmed at either end is at least 0 and below 0.5, got {share!r}")
    stack = _checked(stack)
    return _middle(stack, math.floor(share * len(stack) + 1e-9))  # 0.29 of 100 is 29, though not in binary


AGGREGATIONS: dict[str, Aggregate] = {
    "average": average,
    "weighted": weighted,
    "federated": federated,
    "median": median,
    "trimmed_mean": trimmed_mean,
}


def find(aggregation: str | Aggregate) -> Aggregate:
    """An aggregation by its name; a function is taken as it is."""
    if callable(aggregation):
        return aggregation
    if not isinstance(aggregation, str) or aggregation not in AGGREGATIONS:
        hint = "(your own: a function of (stack, weights))"
        raise ConfigError(str(UnknownName.of("aggregation", str(aggregation), AGGREGATIONS, hint)))
    return AGGREGATIONS[aggregation]


def _checked(stack: Any) -> np.ndarray:
    stack = np.asarray(stack)
    if stack.ndim != 2 or not len(stack):
        raise ConfigError(f"a stack is [clients, size] with at least one client, got shape {stack.shape}")
    return stack


def _shares(weights: Any, clients: int) -> np.ndarray:
    """Weights that sum to one. Divided by the largest first: their own sum may be more than a float holds."""
    weights = np.asarray(weights, np.float64)
    if weights.shape != (clients,):
        raise ConfigError(f"{clients} clients need as many weights, got shape {weights.shape}")
    if not np.isfinite(weights).all() or weights.min() < 0 or not weights.max() > 0:
        raise ConfigError(f"weights are finite, not negative and not all zero, got {weights.tolist()}")
    scaled = weights / weights.max()
    return np.asarray(scaled / scaled.sum())


def _middle(stack: np.ndarray, left_out: int) -> np.ndarray:
    """The mean of each column without so many at either end."""
    result = np.empty(stack.shape[1], np.float32)
    for start in range(0, len(result), PIECE):
        piece = slice(start, start + PIECE)
        kept = np.sort(stack[:, piece], axis=0)[left_out : len(stack) - left_out]
        result[piece] = np.add.reduce(kept, axis=0, dtype=np.float64) / len(kept)
    return result
