"""From the bus into the replay. When the table is full it stops polling, and "no" flows back to the actors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from millstream.core.codec import decode, encode
from millstream.core.data import Delivery, Rollout, Stamp
from millstream.core.ports import Replay, Subscription

_ALL = 1 << 30


class Ingest:
    """The role between wire and table."""

    def __init__(
        self,
        subscription: Subscription[Rollout],
        replay: Replay,
        limit: int = 8,
        copied: Callable[[Rollout], None] | None = None,
        placed: Callable[[Delivery[Rollout]], None] | None = None,
    ):
        self.subscription, self.replay, self.limit = subscription, replay, limit
        self.copied, self.placed = copied, placed
        """Who hears of each rollout that is in the replay now, and of where it stood on the wire."""
        self._waiting: deque[Delivery[Rollout]] = deque()
        self._own: set[tuple[int, int, int]] = set()

    def step(self) -> int:
        """Move what has arrived. Where the replay copies it, that is told, and its memory goes back to the actor."""
        if not self._waiting:
            self._waiting.extend(self.subscription.poll(self.limit))
        moved = 0
        while self._waiting and self.replay.insert(self._waiting[0].message):
            delivery = self._waiting.popleft()
            if self.placed is not None:
                self.placed(delivery)
            if self.copied is not None:
                self.copied(delivery.message)
                self._release(delivery.message.stamp)
            moved += 1
        return moved

    def take_back(self, deliveries: Sequence[Delivery[Rollout]]) -> None:
        """These were read from the bus by somebody else: they come next, after what waits here."""
        self._waiting.extend(deliveries)

    def snapshot(self) -> Mapping[str, Any]:
        """What is on its way into the replay. Its memory goes back to the actors here as in a run that resumes."""
        self._waiting += self.subscription.poll(_ALL)
        messages = [encode(delivery.message) for delivery in self._waiting]
        for delivery in self._waiting:
            self._release(delivery.message.stamp)
        self._keep([decode(message) for message in messages])
        return {"waiting": [np.frombuffer(message, np.uint8) for message in messages]}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """The same on its way."""
        self._keep([decode(message.tobytes()) for message in snapshot["waiting"]])

    def _keep(self, rollouts: Sequence[Rollout]) -> None:
        """In memory of our own, where they have no place on a wire any more."""
        self._waiting = deque(Delivery(rollout, "", -1) for rollout in rollouts)
        self._own = {rollout.stamp.identity for rollout in rollouts}

    def _release(self, stamp: Stamp) -> None:
        """Once: a rollout in memory of our own was released when it was copied there."""
        if stamp.identity in self._own:
            self._own.discard(stamp.identity)
        else:
            self.subscription.release(stamp)
