"""Clipping and Adam over one flat vector, for NumPy arrays (in C where it was compiled) and tensors alike."""

from __future__ import annotations

import math
from ctypes import CDLL
from dataclasses import dataclass

import numpy as np

from millstream.agents.maths import namespace
from millstream.core import native
from millstream.core.data import Array, Gradients
from millstream.core.native import place

PIECE = 32_768
"""Weights that are moved at a time."""


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
    """One step, in place, piece by piece: what comes in between stays in the caches."""
    moments.count += 1
    beta, gamma = decay
    scale = (1 - gamma**moments.count) ** 0.5
    length = rate * scale / (1 - beta**moments.count)
    library = _library(weights, gradients, moments.first, moments.second)
    if library is not None:
        places = (place(array) for array in (weights, gradients, moments.first, moments.second))
        library.mill_adam(len(weights), *places, beta, gamma, length, epsilon * scale)
        return
    for start in range(0, len(weights), PIECE):
        piece = slice(start, start + PIECE)
        gradient, first, second = gradients[piece], moments.first[piece], moments.second[piece]
        first *= beta
        first += (1 - beta) * gradient
        second *= gamma
        second += (1 - gamma) * gradient * gradient
        weights[piece] -= length * (first / (second**0.5 + epsilon * scale))


def follow(weights: Array, others: Array, share: float) -> None:
    """Move a share of the way to where others are, in place."""
    library = _library(weights, others)
    if library is not None:
        library.mill_follow(len(weights), place(weights), place(others), share)
    else:
        weights += share * (others - weights)


def _library(*arrays: Array) -> CDLL | None:
    """What is written in C, where it is there and can read these."""
    fit = (isinstance(each, np.ndarray) and each.dtype == np.float32 and each.flags.c_contiguous for each in arrays)
    return native.LIBRARY if all(fit) and len({len(each) for each in arrays}) == 1 else None
