"""From the bus into the replay. When the table is full it stops polling, and "no" flows back to the actors."""

from __future__ import annotations

from collections import deque

from millstream.core.data import Delivery, Rollout
from millstream.core.ports import Replay, Subscription


class Ingest:
    """The role between wire and table."""

    def __init__(self, subscription: Subscription[Rollout], replay: Replay, limit: int = 8):
        self.subscription, self.replay, self.limit = subscription, replay, limit
        self._waiting: deque[Delivery[Rollout]] = deque()

    def step(self) -> int:
        """Move what has arrived."""
        if not self._waiting:
            self._waiting.extend(self.subscription.poll(self.limit))
        moved = 0
        while self._waiting and self.replay.insert(self._waiting[0].message):
            self._waiting.popleft()
            moved += 1
        return moved
