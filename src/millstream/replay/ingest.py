"""From the bus into the replay. When the table is full it stops polling, and "no" flows back to the actors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from millstream.core.data import Delivery, Rollout
from millstream.core.ports import Replay, Subscription


class Ingest:
    """The role between wire and table."""

    def __init__(
        self,
        subscription: Subscription[Rollout],
        replay: Replay,
        limit: int = 8,
        copied: Callable[[Rollout], None] | None = None,
    ):
        self.subscription, self.replay, self.limit, self.copied = subscription, replay, limit, copied
        self._waiting: deque[Delivery[Rollout]] = deque()

    def step(self) -> int:
        """Move what has arrived. Where the replay copies it, that is told, and its memory goes back to the actor."""
        if not self._waiting:
            self._waiting.extend(self.subscription.poll(self.limit))
        moved = 0
        while self._waiting and self.replay.insert(self._waiting[0].message):
            rollout = self._waiting.popleft().message
            if self.copied is not None:
                self.copied(rollout)
                self.subscription.release(rollout.stamp)
            moved += 1
        return moved
