"""An actor's rollouts on their way into the log. Credit bounds what is under way; nothing is given up."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from confluent_kafka import KafkaError, Message

from millstream.core.data import Rollout, Stamp
from millstream.core.errors import Unavailable
from millstream.wires.kafka.cluster import PART_BYTES
from millstream.wires.kafka.notes import headers_of
from millstream.wires.kafka.outlet import Heard, Outlet
from millstream.wires.kafka.parts import cut
from millstream.wires.kafka.topics import LANES, Names
from millstream.wires.memory import aligned

_PART = PART_BYTES - 1024
"""What is left of a message beside key and headers."""


class Credit(Protocol):
    """Who knows how far the learner is."""

    def released(self, actor: int, epoch: int) -> int:
        """The last sequence of an actor's life that is done with; -1 when none is."""


@dataclass(slots=True)
class _Leaving:
    """A rollout that the broker has not acknowledged whole."""

    stamp: Stamp
    steps: int
    parts: list[bytearray]
    sent: int = 0
    """Parts that the client has taken."""
    acknowledged: int = 0


@dataclass(slots=True)
class _Lane:
    """What one actor has under way."""

    epoch: int | None = None
    unreleased: deque[int] = field(default_factory=deque)
    """Sequences that the learner is not done with."""
    leaving: dict[tuple[int, int], _Leaving] = field(default_factory=dict)
    """By epoch and sequence, in the order in which they must arrive."""
    last: int = -1
    claimed: memoryview | None = None
    spare: memoryview | None = None

    @property
    def settled(self) -> int:
        return next(iter(self.leaving.values())).stamp.sequence - 1 if self.leaving else self.last


class Sending:
    """The sender's half of the bus."""

    def __init__(self, outlet: Outlet, names: Names, run: str, window: int, credit: Credit) -> None:
        self._outlet, self._topic, self._run = outlet, names.experiences, run
        self._window, self._credit = window, credit
        self._lanes: dict[int, _Lane] = {}
        self._refusal: KafkaError | None = None
        outlet.renewed.append(self._again)

    @property
    def unsettled(self) -> int:
        """Rollouts that the broker has not acknowledged."""
        return sum(len(lane.leaving) for lane in self._lanes.values())

    def claim(self, sender: int, size: int) -> memoryview | None:
        """Memory for the sender's next rollout; None: no credit."""
        lane = self._lane(sender)
        if lane.claimed is not None and len(lane.claimed) >= size:
            return lane.claimed
        if not self._has_credit(sender, lane):
            return None
        fits = lane.spare is not None and len(lane.spare) >= size
        lane.claimed, lane.spare = (lane.spare if fits else aligned(size)), None
        return lane.claimed

    def publish(self, rollout: Rollout) -> bool:
        """Hand a rollout to the client; False: no credit."""
        stamp, lane = rollout.stamp, self._lane(rollout.stamp.actor)
        if lane.epoch != stamp.epoch:
            lane.epoch = stamp.epoch
            lane.unreleased.clear()
        if not self._has_credit(stamp.actor, lane):
            return False
        lane.leaving[stamp.epoch, stamp.sequence] = _Leaving(stamp, rollout.count, cut(rollout, _PART))
        lane.unreleased.append(stamp.sequence)
        lane.last = stamp.sequence
        lane.spare, lane.claimed = lane.claimed, None
        self.look()
        return True

    def settled(self, sender: int) -> int:
        """The last sequence up to which the broker has acknowledged all."""
        self.look()
        return self._lane(sender).settled

    def look(self) -> None:
        """Hear what was acknowledged, and send what found no room before."""
        self._outlet.look()
        for lane in self._lanes.values():
            self._send(lane)
        if self._refusal is not None:
            raise Unavailable(f"{self._topic} does not take experience: {self._refusal.str()}")

    def flush(self, seconds: float) -> bool:
        """Wait until all is acknowledged; False when it is not by then."""
        ends = time.monotonic() + seconds
        while self.unsettled and time.monotonic() < ends:
            self.look()
            self._outlet.flush(max(0.0, min(0.5, ends - time.monotonic())))
        return not self.unsettled

    def _again(self) -> None:
        """With a new client: what was not acknowledged goes once more. Who reads knows the second from the first."""
        for lane in self._lanes.values():
            for each in lane.leaving.values():
                each.sent = each.acknowledged = 0

    def _has_credit(self, sender: int, lane: _Lane) -> bool:
        self.look()  # who has none asks for it again and again, and does nothing else
        if lane.epoch is not None and lane.unreleased:
            done = self._credit.released(sender, lane.epoch)
            while lane.unreleased and lane.unreleased[0] <= done:
                lane.unreleased.popleft()
        return len(lane.unreleased) < self._window

    def _send(self, lane: _Lane) -> None:
        """Give the client what it has not taken yet, in order, as long as it has room."""
        for leaving in list(lane.leaving.values()):
            while leaving.sent < len(leaving.parts):
                if not self._send_part(lane, leaving):
                    return
                leaving.sent += 1

    def _send_part(self, lane: _Lane, leaving: _Leaving) -> bool:
        stamp, parts, index = leaving.stamp, leaving.parts, leaving.sent
        return self._outlet.send(
            self._topic,
            f"actor-{stamp.actor}",
            bytes(parts[index]),
            partition=stamp.actor % LANES,
            headers=headers_of(self._run, stamp, leaving.steps, index, len(parts)),
            heard=self._hearing(lane, leaving),
        )

    def _hearing(self, lane: _Lane, leaving: _Leaving) -> Heard:
        def heard(error: KafkaError | None, message: Message) -> None:
            if error is None:
                leaving.acknowledged += 1
                if leaving.acknowledged >= len(leaving.parts):
                    lane.leaving.pop((leaving.stamp.epoch, leaving.stamp.sequence), None)
            elif not self._outlet.breaks(error):
                self._refusal = error

        return heard

    def _lane(self, sender: int) -> _Lane:
        return self._lanes.setdefault(sender, _Lane())
