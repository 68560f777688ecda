"""From the bus into the replay. When the table is full it stops polling, and "no" flows back to the actors."""

from __future__ import annotations

from collections import deque

from millstream.core.data import Delivery, Rollout, Stamp
from millstream.core.ports import Replay, Subscription


class Ingest:
    """The role between wire and table."""

    def __init__(self, subscription: Subscription[Rollout], replay: Replay, limit: int = 8, copied: bool = False):
        self.subscription, self.replay, self.limit, self.copied = subscription, replay, limit, copied
        self._waiting: deque[Delivery[Rollout]] = deque()
        self._arrived: list[tuple[Stamp, int]] = []

    def step(self) -> int:
        """Move what has arrived."""
        if not self._waiting:
            self._waiting.extend(self.subscription.poll(self.limit))
        moved = 0
        while self._waiting and self.replay.insert(self._waiting[0].message):
            rollout = self._waiting.popleft().message
            if self.copied:  # its memory can go back to the actor at once
                self._arrived.append((rollout.stamp, rollout.count))
                self.subscription.release(rollout.stamp)
            moved += 1
        return moved

    def arrived(self) -> list[tuple[Stamp, int]]:
        """Rollouts that came into a table which copies, and how many steps count in each, since the last call."""
        arrived, self._arrived = self._arrived, []
        return arrived
