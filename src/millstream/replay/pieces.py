"""Where sequences begin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from millstream.core.data import Rollout
from millstream.core.errors import ConfigError


class Pieces:
    """Where sequences begin: each rollout is cut into pieces of equal length, the last of which may overlap."""

    def __init__(self, steps: int, rows: int, begin: int = 0):
        self.steps, self.first, self.count = steps, begin, 0
        self._starts = np.zeros(max(1, rows), np.int64)  # numbers of rows; no row begins two of them

    def of(self, rollout: Rollout) -> int:
        """How many pieces a rollout gives."""
        return -(-rollout.steps // self.steps) * rollout.slots

    def check(self, rollout: Rollout) -> None:
        """Refuse one that is too short."""
        if rollout.steps < self.steps:
            raise ConfigError(f"rollouts of {rollout.steps} steps hold no sequence of {self.steps}; raise actor.unroll")

    def write(self, row: int, rollout: Rollout) -> int:
        """Note where the pieces of a rollout begin, whose first row has this number."""
        begins = np.minimum(np.arange(0, rollout.steps, self.steps), rollout.steps - self.steps)
        starts = row + (begins[:, None] * rollout.slots + np.arange(rollout.slots)).reshape(-1)
        places = (self.first + self.count + np.arange(len(starts))) % len(self._starts)
        self._starts[places] = starts
        self.count += len(starts)
        return len(starts)

    def let_go(self, row: int) -> None:
        """Pieces that begin before this row are gone."""
        while self.count and self._starts[self.first % len(self._starts)] < row:
            self.first += 1
            self.count -= 1

    def snapshot(self) -> Mapping[str, Any]:
        """Where those that are there begin."""
        return {"first": self.first, "starts": self.rows(self.first + np.arange(self.count))}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """The same again."""
        self.first, self.count = snapshot["first"], len(snapshot["starts"])
        self._starts[(self.first + np.arange(self.count)) % len(self._starts)] = snapshot["starts"]

    def rows(self, keys: np.ndarray) -> np.ndarray:
        """The numbers of the rows where they begin."""
        starts: np.ndarray = self._starts[keys % len(self._starts)]
        return starts
