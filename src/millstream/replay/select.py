"""Which items of a table are picked. Items are numbered as they come; those that are there have numbers in a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Self

import numpy as np
from numpy.random import Generator

from millstream.core.errors import ConfigError
from millstream.replay.tree import SumTree


class Select(Protocol):
    """One way to pick."""

    def fresh(self, capacity: int) -> Select:
        """The same way for another table of so many items."""

    def resize(self, capacity: int) -> None:
        """There is room for more items, or for fewer."""

    def added(self, base: int, capacity: int, first: int, count: int) -> None:
        """Items from this number on came into the stretch of `capacity` places that begins at `base`."""

    def removed(self, base: int, capacity: int, first: int, count: int) -> None:
        """Items from this number on, the oldest there, left."""

    def pick(self, size: int, first: int, count: int, rng: Generator) -> tuple[np.ndarray, np.ndarray | None]:
        """Numbers of items among those that are there, and their importance (None: all alike)."""

    def reprioritise(self, keys: np.ndarray, priorities: np.ndarray) -> None:
        """Change how likely they are."""

    def about(self) -> Mapping[str, Any]:
        """What two must agree in for one to go on from the other's snapshot."""

    def snapshot(self) -> Mapping[str, Any]:
        """What picking depends on."""

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """The same again."""


class Unmoved:
    """What comes, goes or matters more changes nothing."""

    def fresh(self, capacity: int) -> Self:
        """The same: there is nothing that two tables could not share."""
        return self

    def resize(self, capacity: int) -> None:
        """Nothing to write down."""

    def added(self, base: int, capacity: int, first: int, count: int) -> None:
        """Nothing to write down."""

    def removed(self, base: int, capacity: int, first: int, count: int) -> None:
        """Nothing to write down."""

    def reprioritise(self, keys: np.ndarray, priorities: np.ndarray) -> None:
        """Priorities are for those who ask for them."""

    def about(self) -> Mapping[str, Any]:
        """Its name."""
        return {"select": type(self).__name__}

    def snapshot(self) -> Mapping[str, Any]:
        """Nothing was written down."""
        return {}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Nothing was written down."""


def drawn(rng: Generator, size: int, count: int) -> np.ndarray:
    """So many whole numbers from 0 to before `count`: a third of the time that `Generator.integers` takes for a few."""
    spots: np.ndarray = (rng.random(size) * count).astype(np.int64)
    return spots


class Uniform(Unmoved):
    """Each is as likely as any other, every time anew."""

    def pick(self, size: int, first: int, count: int, rng: Generator) -> tuple[np.ndarray, np.ndarray | None]:
        """With replacement."""
        return drawn(rng, size, count) + first, None


class Fifo(Unmoved):
    """The oldest, in the order they came."""

    def pick(self, size: int, first: int, count: int, rng: Generator) -> tuple[np.ndarray, np.ndarray | None]:
        """The oldest of all; once there are no more, the oldest again."""
        return first + np.arange(size) % count, None


class Lifo(Unmoved):
    """The newest, the newest of all first."""

    def pick(self, size: int, first: int, count: int, rng: Generator) -> tuple[np.ndarray, np.ndarray | None]:
        """As many as there are; then from the newest again."""
        return first + count - 1 - np.arange(size) % count, None


class Prioritised:
    """In proportion to priority ** exponent (Schaul et al. 2016). What is new counts as the greatest that was seen."""

    def __init__(self, exponent: float = 0.6, correction: float = 0.4):
        if not 0 <= exponent <= 10 or not 0 <= correction <= 1:
            raise ConfigError(f"exponent is 0 to 10 and correction 0 to 1, got {exponent} and {correction}")
        self.exponent, self.correction = exponent, correction
        self.greatest = 1.0
        """The greatest priority that was given so far."""

    def fresh(self, capacity: int) -> Prioritised:
        """With a tree of its own."""
        found = Prioritised(self.exponent, self.correction)
        found.tree, found.capacity = SumTree(capacity), capacity
        return found

    def resize(self, capacity: int) -> None:
        """Weights stay where they are."""
        leaves, self.tree, self.capacity = self.tree.leaves, SumTree(capacity), capacity
        kept = min(capacity, len(leaves))
        weights = np.zeros(self.tree.width)
        weights[:kept] = leaves[:kept]
        self.tree.leaves = weights

    def added(self, base: int, capacity: int, first: int, count: int) -> None:
        """They are as likely as the likeliest."""
        self._fill(base, capacity, first, count, self.greatest**self.exponent)

    def removed(self, base: int, capacity: int, first: int, count: int) -> None:
        """They are never picked again."""
        self._fill(base, capacity, first, count, 0.0)

    def pick(self, size: int, first: int, count: int, rng: Generator) -> tuple[np.ndarray, np.ndarray | None]:
        """One from each of `size` equal parts of the sum."""
        if not self.tree.total > 0:
            return Uniform().pick(size, first, count, rng)
        leaves, importance = self.pick_leaves(size, count, rng)
        return first + (leaves - first) % self.capacity, importance  # the one number of those that stands at that leaf

    def pick_leaves(self, size: int, count: int, rng: Generator) -> tuple[np.ndarray, np.ndarray]:
        """The same by places in the tree; importance is at most 1."""
        whole = self.tree.total
        leaves, weights = self.tree.find((np.arange(size) + rng.random(size)) * (whole / size))
        importance = np.maximum(weights * (count / whole), 1e-12) ** -self.correction
        return leaves, (importance / importance.max()).astype(np.float32)

    def reprioritise(self, keys: np.ndarray, priorities: np.ndarray) -> None:
        """Numbers above or equal to 0."""
        self.greatest = max(self.greatest, float(priorities.max(initial=0.0)))
        self.tree.put(keys % self.capacity, priorities**self.exponent)

    def about(self) -> Mapping[str, Any]:
        """Its name, and what weights are made with."""
        return {"select": type(self).__name__, "exponent": self.exponent}

    def snapshot(self) -> Mapping[str, Any]:
        """All weights."""
        return {"greatest": self.greatest, "weights": self.tree.leaves.copy()}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """The same weights."""
        self.greatest = snapshot["greatest"]
        self.tree.leaves = snapshot["weights"]

    def _fill(self, base: int, capacity: int, first: int, count: int, value: float) -> None:
        start = first % capacity
        end = start + count
        self.tree.fill(base + start, base + min(end, capacity), value)
        if end > capacity:
            self.tree.fill(base, base + end - capacity, value)

    tree: SumTree
    capacity: int
