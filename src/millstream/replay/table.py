"""Experience at rest as a table of small policies. A queue is a preset: first in, first out, each sampled once."""

from __future__ import annotations

from collections import deque

import numpy as np

from millstream.core.data import Array, Rollout, Sample


class Queue:
    """Rollouts in the order they came, each handed out once. Full, it says no."""

    def __init__(self, capacity: int):
        self.capacity = capacity
        self._held: deque[tuple[int, Rollout]] = deque()
        self._next = 0

    @property
    def waiting(self) -> int:
        """Rollouts that nobody has taken yet."""
        return len(self._held)

    def insert(self, rollout: Rollout) -> bool:
        """Keep it; False: full, ask again."""
        if len(self._held) >= self.capacity:
            return False
        self._held.append((self._next, rollout))
        self._next += 1
        return True

    def sample(self, size: int) -> Sample | None:
        """The oldest `size` rollouts, or None while there are fewer."""
        if size < 1 or len(self._held) < size:
            return None
        taken = [self._held.popleft() for _ in range(size)]
        return Sample([rollout for _, rollout in taken], np.array([key for key, _ in taken]))

    def reprioritise(self, keys: Array, priorities: Array) -> None:
        """Order is all a queue knows; priorities change nothing."""
