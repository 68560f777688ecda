"""Minibatches: rows of a batch in a fresh order every epoch, cut into shards whose sums do not depend on threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.random import Generator

from millstream.core.data import Batch

GRAIN = 256
"""Rows below which a shard usually costs more than a thread gives."""


def grain_of(agent: object) -> int:
    """The same for one agent, which may say it in `grain`."""
    return getattr(agent, "grain", None) or GRAIN


def row_count(batch: Batch) -> int:
    """How many rows every column has."""
    return len(next(iter(batch.values())))


def rows_of_a_minibatch(batch: Batch, steps: int, sequences: bool) -> int:
    """How many rows hold `steps` steps."""
    length = batch["actions"].shape[1] if sequences else 1
    return max(1, min(steps // length, row_count(batch)))


def count(batch: Batch, size: int) -> int:
    """How many minibatches an epoch has."""
    return max(1, row_count(batch) // size)


def minibatches(batch: Batch, size: int, epochs: int, rng: Generator) -> Iterator[np.ndarray]:
    """Row numbers, each row once an epoch. A remainder joins the last minibatch: nothing is left out."""
    total, last = row_count(batch), count(batch, size) - 1
    for _ in range(epochs):
        order = rng.permutation(total)
        for index in range(last + 1):
            yield order[index * size : (index + 1) * size if index < last else total]


def cut(rows: np.ndarray, shards: int, grain: int) -> list[np.ndarray]:
    """The shards of one minibatch, of at least `grain` rows each; a small one stays whole."""
    parts = max(1, min(shards, len(rows) // grain))
    return np.array_split(rows, parts)


def shares(batch: Batch, parts: Sequence[np.ndarray]) -> list[float]:
    """The weight of each shard in the mean over the minibatch: by the steps that count, where not all do."""
    counted = [float(batch["valid"][part].sum()) if "valid" in batch else float(len(part)) for part in parts]
    return [count / max(sum(counted), 1.0) for count in counted]


def take(batch: Batch, rows: np.ndarray) -> Batch:
    """Some rows of every column."""
    return {name: column[rows] for name, column in batch.items()}
