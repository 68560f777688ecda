"""Where the rollouts of an update come from: fresh ones, each used once, or steps picked from a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np

from millstream.core.data import NONE, Array, Rollout, Stamp, Version
from millstream.core.ports import Replay, Snapshots
from millstream.learner.course import Course, Entry

Counted: TypeAlias = tuple[Stamp, int]
"""A rollout, and how many environment steps of it count."""


@dataclass
class Taken:
    """What one update learns from."""

    rollouts: list[Rollout]
    lag: float
    used: list[Counted]
    """Rollouts that this update was the first to see: their steps count as trained with it."""
    dropped: list[Counted] = field(default_factory=list)
    """Rollouts that were too old: their steps count as stale with it."""
    owed: list[Stamp] = field(default_factory=list)
    """Those of them that are released with it, because earlier ones of their actors are used by it."""
    keys: Array | None = None
    """Of items whose priorities matter."""
    entry: Entry | None = None
    """What it does again, if it does."""

    lag_max: int = 0
    """How many updates behind the oldest policy was; `lag` is the mean."""
    corrected: list[Stamp] = field(default_factory=list)
    """Rollouts that are too old, and learnt from with a correction."""

    @property
    def steps(self) -> int:
        """Environment steps that count as trained with this update."""
        return sum(steps for _, steps in self.used)


class Source(Protocol):
    """Gives what the next update learns from."""

    @property
    def waiting(self) -> int:
        """How much is there and not used up."""

    def take(self, epoch: int, updates: int, hyper: Any) -> Taken | None:
        """Enough for an update, or None while there is not."""

    def reprioritise(self, keys: Array, priorities: Array) -> None:
        """How much each of the items taken still surprises."""

    def give_back(self, taken: Taken) -> None:
        """The update is done and its policy is out."""


class Fresh:
    """Rollouts in the order of their actors, each once; those of a policy that is too old are dropped, or marked.

    While a course lasts, those that it names are used and dropped, and nothing else decides.
    """

    def __init__(
        self,
        replay: Replay,
        rollouts: Callable[[], int],
        max_lag: int | None,
        release: Callable[[Stamp], None],
        course: Course | None = None,
        correct: bool = False,
    ):
        self.replay, self.rollouts, self.max_lag, self.release = replay, rollouts, max_lag, release
        self.course = course
        self.correct = correct
        """Whether what is too old is learnt from with a correction, rather than dropped."""
        self._gathered: list[Rollout] = []
        self._dropped: list[Counted] = []
        self._owed: list[Stamp] = []

    @property
    def waiting(self) -> int:
        """Rollouts in the queue."""
        return self.replay.waiting

    def take(self, epoch: int, updates: int, hyper: Any) -> Taken | None:
        """Gather until there are enough."""
        entry = self.course.due(updates + 1) if self.course else None
        judge = partial(self._judge, epoch, updates)
        if not (self._gather(judge) if entry is None else self._gather_again(entry, judge)):
            return None
        # in the order of their actors: which of them was quicker must not matter
        rollouts = sorted(self._gathered, key=lambda rollout: rollout.stamp.identity)
        lag, lag_max = _lag([rollout.stamp for rollout in rollouts], updates)
        used = [(rollout.stamp, rollout.count) for rollout in rollouts]
        old = [each.stamp for each in rollouts if self._corrected(each, entry, epoch, updates)]
        taken = Taken(rollouts, lag, used, self._dropped, self._owed, entry=entry, lag_max=lag_max, corrected=old)
        self._gathered, self._dropped, self._owed = [], [], []
        if self.course and entry:
            self.course.took()
        return taken

    def reprioritise(self, keys: Array, priorities: Array) -> None:
        """Each is used once: nothing to tell."""

    def give_back(self, taken: Taken) -> None:
        """Credit goes back to the actors."""
        for stamp in (*(rollout.stamp for rollout in taken.rollouts), *taken.owed):
            self.release(stamp)

    def snapshot(self) -> Mapping[str, Any]:
        """What was dropped since the last update and does not come again."""
        owed = {stamp.identity for stamp in self._owed}
        gone = [[*stamp.identity, steps] for stamp, steps in self._dropped if stamp.identity not in owed]
        return {"dropped": gone}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """It belongs to the next update."""
        for actor, epoch, sequence, steps in snapshot["dropped"]:
            self._dropped.append((Stamp("", actor, epoch, sequence, NONE, 0.0), steps))
            if self.course:
                self.course.came((actor, epoch, sequence))

    def _gather(self, judge: Callable[[Rollout], None]) -> bool:
        while len(self._gathered) < self.rollouts():
            sample = self.replay.sample(1)
            if sample is None:
                return False
            for rollout in sample.rollouts:
                judge(rollout)
        return True

    def _gather_again(self, entry: Entry, judge: Callable[[Rollout], None]) -> bool:
        """Those that the entry names, as they come."""
        assert self.course is not None
        used, dropped = set(entry.used), set(entry.dropped)
        while len(self._gathered) + len(self._dropped) < len(used) + len(dropped):
            sample = self.replay.sample(1)
            if sample is None:
                return False
            for rollout in sample.rollouts:
                if rollout.stamp.identity in used:
                    self._gathered.append(rollout)
                elif rollout.stamp.identity in dropped:
                    self._drop(rollout, later=True)
                else:
                    self.course.abandon(f"rollout {list(rollout.stamp.identity)} came, which it does not name")
                    judge(rollout)
                    return False
        return True

    def _judge(self, epoch: int, updates: int, rollout: Rollout) -> None:
        # a rollout of nothing but resets has no row to learn from
        useful = rollout.count and (self.correct or self._fresh(rollout, epoch, updates))
        self._gathered.append(rollout) if useful else self._drop(rollout)

    def _corrected(self, rollout: Rollout, entry: Entry | None, epoch: int, updates: int) -> bool:
        if entry is not None:
            return rollout.stamp.identity in entry.corrected
        return self.correct and not self._fresh(rollout, epoch, updates)

    def _fresh(self, rollout: Rollout, epoch: int, updates: int) -> bool:
        """What an earlier learner's policy made counts as too old where age is bounded, unless it was redone."""
        if self.max_lag is None:
            return True
        policy = rollout.stamp.policy
        known = policy.epoch == epoch or (self.course is not None and self.course.made(policy))
        return known and updates - policy.number <= self.max_lag

    def _drop(self, rollout: Rollout, later: bool = False) -> None:
        """Release it at once, unless that would release one that waits to be used."""
        self._dropped.append((rollout.stamp, rollout.count))
        if later or any(each.stamp.actor == rollout.stamp.actor for each in self._gathered):
            self._owed.append(rollout.stamp)
        else:
            self.release(rollout.stamp)


class KeptReplay(Replay, Snapshots, Protocol):
    """A replay that copies what it is given, and can be kept."""


class Picked:
    """Minibatches from a table. Steps count as trained when they are in it and an update has passed.

    While a course lasts, an update begins when exactly those rollouts have come that it names.
    """

    def __init__(self, table: KeptReplay, course: Course | None = None):
        self.table, self.course = table, course
        self._arrived: list[Counted] = []

    def note(self, rollout: Rollout) -> None:
        """This one is in the table now."""
        self._arrived.append((rollout.stamp, rollout.count))

    @property
    def waiting(self) -> int:
        """Items in the table."""
        return self.table.waiting

    def take(self, epoch: int, updates: int, hyper: Any) -> Taken | None:
        """All minibatches of an update at once."""
        entry = self.course.due(updates + 1) if self.course else None
        if entry is not None and not self._complete(entry):
            return None
        sample = self.table.sample(hyper.minibatch * hyper.gradients)
        if sample is None:
            return None
        if self.course and entry:
            self.course.took()
        rollouts = list(sample.rollouts)
        if sample.weights is not None:
            rollouts = [_weighed(rollout, sample.weights) for rollout in rollouts]
        arrived, self._arrived = self._arrived, []
        lag, lag_max = _lag([stamp for stamp, _ in arrived], updates)
        keys = None if sample.weights is None else sample.keys
        return Taken(rollouts, lag, arrived, keys=keys, entry=entry, lag_max=lag_max)

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
        if self.course:
            for stamp, _ in self._arrived:
                self.course.came(stamp.identity)

    def reprioritise(self, keys: Array, priorities: Array) -> None:
        """The table remembers."""
        self.table.reprioritise(keys, priorities)

    def give_back(self, taken: Taken) -> None:
        """Nothing: the table copied what it holds."""

    def _complete(self, entry: Entry) -> bool:
        """Whether those that the entry names have come, in its order."""
        assert self.course is not None
        there = tuple(stamp.identity for stamp, _ in self._arrived)
        if there != entry.used[: len(there)]:
            self.course.abandon(f"rollouts came otherwise than update {entry.update} names them")
            return False
        return len(there) == len(entry.used)


def _lag(stamps: Sequence[Stamp], updates: int) -> tuple[float, int]:
    """How many updates behind the policies were that rollouts were made with: on average, and at most."""
    # what was recorded elsewhere is of no policy of this run, and behind none of them; neither is one with a higher
    # number, which an earlier learner had reached before it went back to a checkpoint
    lags = [max(0, updates - stamp.policy.number) for stamp in stamps if stamp.policy != NONE]
    return (float(np.mean(lags)), max(lags)) if lags else (0.0, 0)


def _weighed(rollout: Rollout, importance: Array) -> Rollout:
    """Picked items with how much each of them counts."""
    return replace(rollout, extras={**rollout.extras, "importance": importance[None]})
