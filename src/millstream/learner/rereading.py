"""A log that can be read again: from where, without what is done with, and in the order that a course needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from millstream.core.data import Delivery, Rollout, Stamp
from millstream.core.ports import Subscription
from millstream.learner.course import Course, Identity


class Rereading:
    """Each rollout of a log once. While a course lasts they come as it needs them, and the others wait here."""

    def __init__(self, subscription: Subscription[Rollout], course: Course, ended: Callable[[], bool] = lambda: False):
        self.subscription, self.course, self.ended = subscription, course, ended
        """`ended`: whether all is read that the log held when this reader began."""
        self.repeated = 0
        """Rollouts that stood in the log more than once, or were done with already."""
        self._held: dict[Identity, Delivery[Rollout]] = {}
        self._lanes: dict[int, deque[tuple[Identity, str, int]]] = {}  # actor -> what is not done with, oldest first
        self._open: dict[str, dict[int, None]] = {}  # source -> positions of what is not done with, oldest first
        self._seen: dict[tuple[int, int], int] = {}  # actor and epoch -> the last that was read
        self._done: dict[tuple[int, int], int] = {}  # the same for what is done with

    @property
    def held(self) -> int:
        """Rollouts that were read and wait for their turn."""
        return len(self._held)

    def poll(self, limit: int) -> list[Delivery[Rollout]]:
        """What comes next, in the order of the course or else as it arrived."""
        if not self.course.redoing:
            if len(self._held) < limit:
                self._read(limit)
            return [self._held.pop(identity) for identity in [*islice(self._held, limit)]]
        wanted = self.course.wanted
        if wanted is not None and wanted not in self._held:
            self._read(limit)
        return self._in_order(limit)

    def release(self, stamp: Stamp) -> None:
        """This rollout and those before it from its actor are done with: they are not read again."""
        lane = self._lanes.get(stamp.actor, ())
        if any(identity == stamp.identity for identity, _, _ in lane):
            self._let_go(stamp.identity)
        self.subscription.release(stamp)

    def positions(self) -> Mapping[str, int]:
        """Source -> where the oldest rollout stands that is not done with, or the next one to read."""
        oldest = {source: next(iter(places)) for source, places in self._open.items() if places}
        return {**self.subscription.positions(), **oldest}

    def seek(self, positions: Mapping[str, int]) -> None:
        """Read again from there: whatever is not done with."""
        self._held, self._lanes, self._open = {}, {}, {}
        self._seen = dict(self._done)
        self.subscription.seek(positions)

    def snapshot(self) -> Mapping[str, Any]:
        """From where to read again, and what to pass over then."""
        done = [[actor, epoch, sequence] for (actor, epoch), sequence in self._done.items()]
        return {"positions": dict(self.positions()), "done": done}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue there."""
        self._done = {(actor, epoch): sequence for actor, epoch, sequence in snapshot["done"]}
        self.seek(snapshot["positions"])

    def _read(self, limit: int) -> None:
        for delivery in self.subscription.poll(limit):
            identity = delivery.message.stamp.identity
            actor, epoch, sequence = identity
            if sequence <= self._seen.get((actor, epoch), sequence - 1):
                self.repeated += 1
                continue
            self._seen[actor, epoch] = sequence
            self._lanes.setdefault(actor, deque()).append((identity, delivery.source, delivery.position))
            self._open.setdefault(delivery.source, {})[delivery.position] = None
            self._held[identity] = delivery

    def _in_order(self, limit: int) -> list[Delivery[Rollout]]:
        found: list[Delivery[Rollout]] = []
        while len(found) < limit and (wanted := self.course.wanted) is not None:
            if wanted not in self._held:
                self._check(wanted)
                break
            self.course.came(wanted)
            found.append(self._held.pop(wanted))
        return found

    def _check(self, wanted: Identity) -> None:
        """Give the course up when a rollout of it can no longer come: a source has its rollouts in order."""
        actor, epoch, sequence = wanted
        if self._seen.get((actor, epoch), sequence - 1) >= sequence or self.ended():
            self.course.abandon(f"rollout {sequence} of actor {actor} (epoch {epoch}) is not in the log")

    def _let_go(self, last: Identity) -> None:
        lane = self._lanes[last[0]]
        while True:
            identity, source, position = lane.popleft()
            del self._open[source][position]
            self._done[identity[:2]] = identity[2]
            if identity == last:
                return
