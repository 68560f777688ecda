"""Whole rollouts at rest: nothing is copied."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from millstream.core.data import Rollout


class Rollouts:
    """Rollouts by number, in the order they came."""

    def __init__(self, capacity: int):
        self.capacity, self.first = capacity, 0
        self._held: deque[Rollout] = deque()

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._held)

    def items_of(self, rollout: Rollout) -> int:
        """One."""
        return 1

    def write(self, rollout: Rollout) -> int:
        """Keep it; the oldest makes room."""
        if len(self._held) >= self.capacity:
            self.drop(1)
        self._held.append(rollout)
        return 1

    def drop(self, count: int) -> None:
        """Let the oldest go."""
        for _ in range(count):
            self._held.popleft()
        self.first += count

    def blank(self, rollout: Rollout) -> np.ndarray | None:
        """None: a rollout is a rollout."""
        return None

    def blanks(self, keys: np.ndarray) -> np.ndarray:
        """None."""
        return keys[:0]

    def snapshot(self) -> Mapping[str, Any]:
        """Whole rollouts stay where they came from; whoever sent them sends them again."""
        return {}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Empty."""

    def read(self, keys: np.ndarray) -> list[Rollout]:
        """Those with these numbers."""
        return [self._held[key - self.first] for key in keys.tolist()]
