"""What the pushes of a round come to, with or without privacy."""

from __future__ import annotations

import numpy as np

from millstream.core.errors import ConfigError
from millstream.parameters import aggregate
from millstream.parameters.accountant import Accountant
from millstream.parameters.aggregate import Aggregate
from millstream.parameters.privacy import Privacy, clipped_sum
from millstream.parameters.rounds import Push, Round

PRIVATE = ("average", "federated")
"""Aggregations that are sums, so that what one client adds to them can be bounded."""


class Combiner:
    """One vector a round, in memory that serves every round."""

    def __init__(self, aggregation: str | Aggregate, quorum: int, privacy: Privacy | None):
        self.aggregation, self.quorum, self.privacy = aggregation, quorum, privacy
        self.accountant = Accountant()
        self._aggregate = aggregate.find(aggregation)
        self._stack = np.empty((0, 0), np.float32)

    def combine(self, finished: Round, size: int) -> np.ndarray:
        """The round as one vector [size] of float32, the caller's to change."""
        pushes = finished.in_order()
        stack = self._stacked(pushes, size)
        if self.privacy is not None:
            return self._released(self.privacy, stack, pushes)
        by_samples = self.aggregation == "federated"
        counted = np.array([push.samples if by_samples else push.weight for push in pushes])
        result = np.array(self._aggregate(stack, counted), np.float32)  # a copy: it may be a row of the stack
        if result.shape != (size,):
            raise ConfigError(f"the aggregation gave shape {result.shape}, expected ({size},)")
        return result

    def close(self) -> None:
        """Let go of the memory."""
        self._stack = np.empty((0, 0), np.float32)

    def _released(self, privacy: Privacy, stack: np.ndarray, pushes: list[Push]) -> np.ndarray:
        """The noisy mean; paid for before anyone can see it."""
        samples = [push.samples for push in pushes]
        weights = np.ones(len(samples)) if self.aggregation == "average" else privacy.weights(samples)
        self.accountant.step(privacy.noise_multiplier, privacy.sampling_rate)
        return privacy.release(clipped_sum(stack, weights, privacy.clip), self.quorum)

    def _stacked(self, pushes: list[Push], size: int) -> np.ndarray:
        """[clients, size]."""
        if self._stack.shape[0] < len(pushes) or self._stack.shape[1] != size:
            self._stack = np.empty((max(len(pushes), self.quorum), size), np.float32)
        stack = self._stack[: len(pushes)]
        for row, push in zip(stack, pushes, strict=True):
            row[:] = push.vector
        return stack
