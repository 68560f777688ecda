"""Where the rollouts of an update come from: fresh ones, each used once, or steps picked from a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from millstream.core.data import NONE, Array, Rollout, Stamp, Version
from millstream.core.ports import Replay, Snapshots


@dataclass
class Taken:
    """What one update learns from."""

    rollouts: list[Rollout]
    lag: float
    used: list[Stamp]
    """Rollouts that this update was the first to see."""
    dropped: list[Stamp] = field(default_factory=list)
    steps: int = 0
    """Environment steps that count as trained with this update."""
    keys: Array | None = None
    """Of items whose priorities matter."""
    lag_max: int = 0
    """How many updates behind the oldest policy was; `lag` is the mean."""
    corrected: list[Stamp] = field(default_factory=list)
    """Rollouts that are too old, and learnt from with a correction."""


class Source(Protocol):
    """Gives what the next update learns from."""

    @property
    def waiting(self) -> int:
        """How much is there and not used up."""

    def take(self, epoch: int, updates: int, hyper: Any) -> Taken | None:
        """Enough for an update, or None while there is not."""

    def shed(self) -> int:
        """Steps that were dropped as too old since the last call."""

    def reprioritise(self, keys: Array, priorities: Array) -> None:
        """How much each of the items taken still surprises."""

    def give_back(self, taken: Taken) -> None:
        """The update is done and its policy is out."""


class Fresh:
    """Rollouts in the order of their actors, each once; those of a policy that is too old are dropped, or marked."""

    def __init__(
        self,
        replay: Replay,
        rollouts: Callable[[], int],
        max_lag: int | None,
        release: Callable[[Stamp], None],
        correct: bool = False,
    ):
        self.replay, self.rollouts, self.max_lag, self.release = replay, rollouts, max_lag, release
        self.correct = correct
        """Whether what is too old is learnt from with a correction, rather than dropped."""
        self._gathered: list[Rollout] = []
        self._dropped: list[Stamp] = []
        self._stale = 0

    @property
    def waiting(self) -> int:
        """Rollouts in the queue."""
        return self.replay.waiting

    def take(self, epoch: int, updates: int, hyper: Any) -> Taken | None:
        """Gather until there are enough."""
        while len(self._gathered) < self.rollouts():
            sample = self.replay.sample(1)
            if sample is None:
                return None
            for rollout in sample.rollouts:
                # a rollout of nothing but resets has no row to learn from
                useful = rollout.count and (self.correct or self._fresh(rollout, epoch, updates))
                self._gathered.append(rollout) if useful else self._drop(rollout)
        # in the order of their actors: which of them was quicker must not matter
        rollouts = sorted(self._gathered, key=lambda rollout: rollout.stamp.identity)
        stamps, steps = [rollout.stamp for rollout in rollouts], sum(rollout.count for rollout in rollouts)
        lag, lag_max = _lag(stamps, updates)
        old = [each.stamp for each in rollouts if self.correct and not self._fresh(each, epoch, updates)]
        taken = Taken(rollouts, lag, stamps, self._dropped, steps, lag_max=lag_max, corrected=old)
        self._gathered, self._dropped = [], []
        return taken

    def shed(self) -> int:
        """Of policies that were too old."""
        stale, self._stale = self._stale, 0
        return stale

    def reprioritise(self, keys: Array, priorities: Array) -> None:
        """Each is used once: nothing to tell."""

    def give_back(self, taken: Taken) -> None:
        """Credit goes back to the actors."""
        for rollout in taken.rollouts:
            self.release(rollout.stamp)

    def _fresh(self, rollout: Rollout, epoch: int, updates: int) -> bool:
        """What an earlier learner's policy made counts as too old where age is bounded."""
        if self.max_lag is None:
            return True
        policy = rollout.stamp.policy
        return policy.epoch == epoch and updates - policy.number <= self.max_lag

    def _drop(self, rollout: Rollout) -> None:
        self._stale += rollout.count
        self._dropped.append(rollout.stamp)
        self.release(rollout.stamp)


class KeptReplay(Replay, Snapshots, Protocol):
    """A replay that copies what it is given, and can be kept."""


class Picked:
    """Minibatches from a table. Steps count as trained when they are in it and an update has passed."""

    def __init__(self, table: KeptReplay):
        self.table = table
        self._arrived: list[tuple[Stamp, int]] = []

    def note(self, rollout: Rollout) -> None:
        """This one is in the table now."""
        self._arrived.append((rollout.stamp, rollout.count))

    @property
    def waiting(self) -> int:
        """Items in the table."""
        return self.table.waiting

    def take(self, epoch: int, updates: int, hyper: Any) -> Taken | None:
        """All minibatches of an update at once."""
        sample = self.table.sample(hyper.minibatch * hyper.gradients)
        if sample is None:
            return None
        rollouts = list(sample.rollouts)
        if sample.weights is not None:
            rollouts = [_weighed(rollout, sample.weights) for rollout in rollouts]
        arrived, self._arrived = self._arrived, []
        stamps = [stamp for stamp, _ in arrived]
        lag, lag_max = _lag(stamps, updates)
        return Taken(
            rollouts,
            lag,
            stamps,
            steps=sum(steps for _, steps in arrived),
            keys=None if sample.weights is None else sample.keys,
            lag_max=lag_max,
        )

    def snapshot(self) -> Mapping[str, Any]:
        """The table, and what came into it since the last update."""
        arrived = [[*stamp.identity, stamp.policy.epoch, stamp.policy.number, steps] for stamp, steps in self._arrived]
        return {"table": self.table.snapshot(), "arrived": arrived}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue exactly there."""
        self.table.restore(snapshot["table"])
        self._arrived = [
            (Stamp("", actor, epoch, sequence, Version(*policy), 0.0), steps)
            for actor, epoch, sequence, *policy, steps in snapshot["arrived"]
        ]

    def shed(self) -> int:
        """None: a table bears any age."""
        return 0

    def reprioritise(self, keys: Array, priorities: Array) -> None:
        """The table remembers."""
        self.table.reprioritise(keys, priorities)

    def give_back(self, taken: Taken) -> None:
        """Nothing: the table copied what it holds."""


def _lag(stamps: Sequence[Stamp], updates: int) -> tuple[float, int]:
    """How many updates behind the policies were that rollouts were made with: on average, and at most."""
    # what was recorded elsewhere is of no policy of this run, and behind none of them; neither is one with a higher
    # number, which an earlier learner had reached before it went back to a checkpoint
    lags = [max(0, updates - stamp.policy.number) for stamp in stamps if stamp.policy != NONE]
    return (float(np.mean(lags)), max(lags)) if lags else (0.0, 0)


def _weighed(rollout: Rollout, importance: Array) -> Rollout:
    """Picked items with how much each of them counts."""
    return replace(rollout, extras={**rollout.extras, "importance": importance[None]})
