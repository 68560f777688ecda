"""Running statistics. They belong to the learner and reach actors frozen, as part of a policy."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from millstream.core.data import Rollout


@dataclass
class Moments:
    """Mean and variance of all that was seen, combined batch by batch (Chan et al. 1979)."""

    mean: np.ndarray
    variance: np.ndarray
    count: float = 0.0

    @classmethod
    def of(cls, shape: tuple[int, ...]) -> Moments:
        """Nothing seen yet: a mean of zero, a variance of one."""
        return cls(np.zeros(shape), np.ones(shape))

    def see(self, rows: np.ndarray) -> None:
        """Take in rows [N, *shape]."""
        if not len(rows):
            return
        mean, variance, n = rows.mean(axis=0, dtype=np.float64), rows.var(axis=0, dtype=np.float64), len(rows)
        total, shift = self.count + n, mean - self.mean
        spread = self.variance * self.count + variance * n + shift**2 * self.count * n / total
        # arrays even where the shape is (): a checkpoint puts back what it finds here
        self.variance, self.mean = np.asarray(spread / total), np.asarray(self.mean + shift * n / total)
        self.count = total


@dataclass
class RewardScale:
    """Rewards divided by the spread of discounted returns, never shifted, so that signs keep their meaning."""

    moments: Moments = field(default_factory=lambda: Moments.of(()))
    running: dict[str, np.ndarray] = field(default_factory=dict)
    """The discounted return so far of each slot, by actor."""

    def see(self, rollout: Rollout, discount: float) -> None:
        """Take in one rollout, in the order it was consumed."""
        key = f"{rollout.stamp.actor}"
        total = np.asarray(self.running.get(key, np.zeros(rollout.slots)))
        if len(total) != rollout.slots:
            total = np.zeros(rollout.slots)
        seen = np.empty(rollout.rewards.shape)
        for t in range(rollout.steps):
            total = total * discount + rollout.rewards[t]
            seen[t] = total
            total = np.where(rollout.terminated[t] | rollout.truncated[t], 0.0, total)
        self.running[key] = total
        self.moments.see(seen[rollout.valid])

    def apply(self, rewards: np.ndarray, limit: float = 10.0) -> np.ndarray:
        """Scaled rewards, outliers cut."""
        spread = np.sqrt(self.moments.variance + 1e-8)
        return np.clip(rewards / spread, -limit, limit).astype(np.float32)
