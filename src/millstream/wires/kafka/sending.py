"""An actor's rollouts on their way into the log. Credit bounds what is under way; nothing is given up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from confluent_kafka import KafkaError, Message

from millstream.core.data import Rollout, Stamp
from millstream.core.errors import Unavailable
from millstream.wires.kafka.cluster import PART_BYTES
from millstream.wires.kafka.outlet import Outlet
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
    acknowledged: int = 0


@dataclass(slots=True)
class _Lane:
    """What one actor has under way."""

    epoch: int | None = None
    unreleased: deque[int] = field(default_factory=deque)
    """Sequences that the learner is not done with."""
    leaving: dict[int, _Leaving] = field(default_factory=dict)
    last: int = -1
    claimed: memoryview | None = None
    spare: memoryview | None = None

    @property
    def settled(self) -> int:
        return min(self.leaving) - 1 if self.leaving else self.last


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
        lane.leaving[stamp.sequence] = _Leaving(stamp, rollout.count, cut(rollout, _PART))
        lane.unreleased.append(stamp.sequence)
        lane.last = stamp.sequence
        self._produce(lane, lane.leaving[stamp.sequence])
        lane.spare, lane.claimed = lane.claimed, None
        self.look()
        return True

    def settled(self, sender: int) -> int:
        """The last sequence up to which the broker has acknowledged all."""
        self.look()
        return self._lane(sender).settled

    def look(self) -> None:
        """Hear what was acknowledged."""
        self._outlet.look()
        if self._refusal is not None:
            raise Unavailable(f"{self._topic} does not take experience: {self._refusal.str()}")

    def _again(self) -> None:
        """With a new client: what was not acknowledged goes once more. Who reads knows the second from the first."""
        for lane in self._lanes.values():
            for each in lane.leaving.values():
                each.acknowledged = 0
                self._produce(lane, each)

    def _has_credit(self, sender: int, lane: _Lane) -> bool:
        if lane.epoch is not None and lane.unreleased:
            done = self._credit.released(sender, lane.epoch)
            while lane.unreleased and lane.unreleased[0] <= done:
                lane.unreleased.popleft()
        return len(lane.unreleased) < self._window

    def _produce(self, lane: _Lane, leaving: _Leaving) -> None:
        stamp, parts = leaving.stamp, leaving.parts
        for index, part in enumerate(parts):
            self._outlet.send(
                self._topic,
                f"actor-{stamp.actor}",
                bytes(part),
                partition=stamp.actor % LANES,
                headers={
                    "run": self._run,
                    "id": f"{stamp.actor}/{stamp.epoch}/{stamp.sequence}",
                    "steps": str(leaving.steps),
                    "part": f"{index}/{len(parts)}",
                },
                heard=self._hearing(lane, leaving),
            )

    def _hearing(self, lane: _Lane, leaving: _Leaving) -> Callable[[KafkaError | None, Message], None]:
        def heard(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._refusal = None if self._outlet.breaks(error) else error
                return
            leaving.acknowledged += 1
            if leaving.acknowledged >= len(leaving.parts):
                lane.leaving.pop(leaving.stamp.sequence, None)

        return heard

    def _lane(self, sender: int) -> _Lane:
        return self._lanes.setdefault(sender, _Lane())
