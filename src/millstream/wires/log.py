"""A bounded line of messages with several readers: what small topics are made of."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Generic, TypeVar

from millstream.core.data import Delivery, Stamp
from millstream.core.topics import Topic

M = TypeVar("M")


class Log(Generic[M]):
    """Messages of one topic, held until every group has read them."""

    def __init__(self, topic: Topic[M], capacity: int) -> None:
        self.topic = topic
        self.capacity = capacity
        self.dropped = 0
        """Messages that made room before everyone had read them."""
        self.oldest = 0
        self.cursors: dict[str, int] = {}
        self._messages: deque[M] = deque()

    @property
    def end(self) -> int:
        """The position of the next message."""
        return self.oldest + len(self._messages)

    def append(self, message: M) -> bool:
        """Add a message; False when the topic refuses and is full."""
        if len(self._messages) >= self.capacity:
            if self.topic.full == "refuse":
                return False
            self._messages.popleft()
            self.oldest += 1
            self.dropped += 1
        self._messages.append(message)
        return True

    def subscribe(self, group: str) -> LogSubscription[M]:
        """A reader at the oldest message still held; it takes the place of an earlier one of its group."""
        self.cursors[group] = self.oldest
        return LogSubscription(self, group)

    def read(self, group: str, limit: int) -> list[Delivery[M]]:
        """The next messages for a group; those that all groups have read are let go."""
        start = max(self.cursors[group], self.oldest)
        first = start - self.oldest
        messages = list(islice(self._messages, first, first + limit))
        self.cursors[group] = start + len(messages)
        self._trim()
        return [Delivery(message, self.topic.name, start + offset) for offset, message in enumerate(messages)]

    def _trim(self) -> None:
        while self._messages and self.oldest < min(self.cursors.values()):
            self._messages.popleft()
            self.oldest += 1


class LogSubscription(Generic[M]):
    """One group's place in a log."""

    def __init__(self, log: Log[M], group: str) -> None:
        self._log = log
        self._group = group

    def poll(self, limit: int) -> list[Delivery[M]]:
        """What has arrived, oldest first."""
        return self._log.read(self._group, limit)

    def release(self, stamp: Stamp) -> None:
        """Nothing to give back: these messages hold no memory of their sender."""

    def positions(self) -> Mapping[str, int]:
        """The next position to read."""
        return {self._log.topic.name: max(self._log.cursors[self._group], self._log.oldest)}

    def seek(self, positions: Mapping[str, int]) -> None:
        """Read again from there, as far as messages are still held."""
        wanted = positions.get(self._log.topic.name, self._log.oldest)
        self._log.cursors[self._group] = min(max(wanted, self._log.oldest), self._log.end)
