"""The bus between processes of one machine: rollouts in shared slabs, everything small over a channel."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from millstream.core.data import Delivery, Rollout, Stamp
from millstream.core.ports import Subscription
from millstream.core.topics import EXPERIENCES, Topic
from millstream.wires.channel import Channel
from millstream.wires.log import Log, LogSubscription
from millstream.wires.ring import Ring

M = TypeVar("M")

_HELD = 4096


class SharedBus:
    """A worker's end of the bus. `rings[i]` belongs to actor i; without a channel, reports stay in this process."""

    def __init__(self, rings: Sequence[Ring] = (), channel: Channel | None = None) -> None:
        self._rings = rings
        self._channel = channel
        self._logs: dict[str, Log[Any]] = {}

    @property
    def dropped(self) -> int:
        """Reports that made room for newer ones before they left or were read."""
        return sum(log.dropped for log in self._logs.values()) + (self._channel.dropped if self._channel else 0)

    def claim(self, topic: Topic[M], sender: int, size: int) -> memoryview | None:
        """The sender's next slab, the same until it publishes; None: no credit."""
        return self._rings[sender].claim(size)

    def publish(self, topic: Topic[M], message: M) -> bool:
        """Hand a message over; False: no credit or full."""
        if topic.name == EXPERIENCES.name:
            rollout = cast(Rollout, message)
            return self._rings[rollout.stamp.actor].publish(rollout)
        if self._channel is None:
            return self._log(topic).append(message)
        return self._channel.send(topic, cast(Mapping[str, Any], message))

    def settled(self, topic: Topic[M], sender: int) -> int:
        """The last sequence of this sender that is published; a replaced actor finds its predecessor's."""
        return self._rings[sender].settled

    def subscribe(self, topic: Topic[M], group: str) -> Subscription[M]:
        """A reader that starts at the oldest message still held."""
        if topic.name == EXPERIENCES.name:
            return cast(Subscription[M], _Rollouts(self._rings))
        return _Reports(self, self._log(topic).subscribe(group))

    def pump(self) -> None:
        """Sort what came over the channel into its topics, and push what waits to leave."""
        for name, body in self._channel.receive() if self._channel else ():
            self._logs.setdefault(name, Log(Topic(name, "drop_oldest"), _HELD)).append(body)

    def _log(self, topic: Topic[M]) -> Log[M]:
        # Both kinds drop here: what arrived has left its sender, so there is nobody to refuse any more.
        return self._logs.setdefault(topic.name, Log(Topic(topic.name, "drop_oldest"), _HELD))


class _Reports:
    """A reader of one topic of the channel."""

    def __init__(self, bus: SharedBus, held: LogSubscription[Any]) -> None:
        self._bus = bus
        self._held = held
        self.release = held.release
        self.positions = held.positions
        self.seek = held.seek

    def poll(self, limit: int) -> list[Delivery[Any]]:
        self._bus.pump()
        return self._held.poll(limit)


class _Rollouts:
    """A reader of all rings. It starts at what was not released, so a new learner loses nothing."""

    def __init__(self, rings: Sequence[Ring]) -> None:
        self._rings = rings
        self._cursors = [0] * len(rings)
        self._turn = 0

    def poll(self, limit: int) -> list[Delivery[Rollout]]:
        deliveries: list[Delivery[Rollout]] = []
        waiting = self._waiting()
        while waiting and len(deliveries) < limit:
            actor, position, end = waiting.popleft()
            deliveries.append(Delivery(self._rings[actor].read(position), f"actor-{actor}", position))
            self._cursors[actor] = position + 1
            if position + 1 < end:
                waiting.append((actor, position + 1, end))  # one of each actor in turn
        return deliveries

    def release(self, stamp: Stamp) -> None:
        self._rings[stamp.actor].release(stamp)

    def positions(self) -> Mapping[str, int]:
        return {f"actor-{actor}": self._cursor(actor) for actor, ring in enumerate(self._rings) if ring.formed}

    def seek(self, positions: Mapping[str, int]) -> None:
        for actor, ring in enumerate(self._rings):
            wanted = positions.get(f"actor-{actor}", 0)
            self._cursors[actor] = min(wanted, ring.published)

    def _waiting(self) -> deque[tuple[int, int, int]]:
        """Who has something to read: actor, its next position, where it ends."""
        self._turn += 1  # rotate, or the first actor takes every place of a short poll
        found: deque[tuple[int, int, int]] = deque()
        for offset in range(len(self._rings)):
            actor = (self._turn + offset) % len(self._rings)
            end = self._rings[actor].published
            if end > self._cursors[actor] and end > (position := self._cursor(actor)):
                found.append((actor, position, end))
        return found

    def _cursor(self, actor: int) -> int:
        return max(self._cursors[actor], self._rings[actor].released)
