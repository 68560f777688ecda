"""Small messages between two processes: JSON lines over a socket pair. Nothing here ever waits."""

from __future__ import annotations

import json
import socket
from collections import deque
from typing import Any

from millstream.core.topics import Report, Topic

_CHUNK = 65536
_ONE_VISIT = 1 << 20  # bytes read at once, so that a talkative peer cannot hold its reader
_LONGEST = 8 << 20


class Channel:
    """One end of a socket pair. Messages wait in a bounded outbox; reports make room for newer ones."""

    def __init__(self, end: socket.socket, capacity: int = 1024) -> None:
        end.setblocking(False)
        self._end = end
        self._capacity = capacity
        self._outbox: deque[tuple[bool, bytes]] = deque()
        self._leaving = memoryview(b"")
        self._arriving = bytearray()
        self._skipping = False
        self.closed = False
        """Whether the other end is gone; what it sent before can still be received."""
        self.dropped = 0
        """Reports that made room for newer ones."""
        self.damaged = 0
        """Lines that were no message."""

    @classmethod
    def adopt(cls, descriptor: int) -> Channel:
        """A channel over an inherited descriptor."""
        return cls(socket.socket(fileno=descriptor))

    @property
    def waiting(self) -> int:
        """Messages that have not left yet."""
        return len(self._outbox) + bool(self._leaving)

    def fileno(self) -> int:
        """What the system knows the socket by, for who wants to wait for it."""
        return self._end.fileno()

    def send(self, topic: Topic[Any], body: Report) -> bool:
        """Put a message on its way; False: full, ask again, or the other end is gone."""
        if self.closed:
            return False
        droppable = topic.full == "drop_oldest"
        self.flush()
        if len(self._outbox) >= self._capacity and not self._make_room(droppable):
            return False
        line = json.dumps({"topic": topic.name, "body": body}, separators=(",", ":"), default=plain)
        self._outbox.append((droppable, line.encode() + b"\n"))
        self.flush()
        return True

    def flush(self) -> None:
        """Write as much as the socket takes."""
        while not self.closed and (self._leaving or self._outbox):
            if not self._leaving:
                self._leaving = memoryview(self._outbox.popleft()[1])
            try:
                self._leaving = self._leaving[self._end.send(self._leaving) :]
            except BlockingIOError:
                return
            except OSError:  # the peer died; what it said before is still to be read
                self.closed = True

    def receive(self) -> list[tuple[str, Any]]:
        """What has arrived, as (topic name, body)."""
        self.flush()
        self._fill()
        *lines, rest = self._arriving.split(b"\n")
        self._arriving = rest
        if len(rest) > _LONGEST:
            self._arriving, self._skipping = bytearray(), True
        messages = []
        for line in lines:
            message = None if self._skipping else _parse(line)
            self._skipping = False
            if message is None:
                self.damaged += 1
            else:
                messages.append(message)
        return messages

    def close(self) -> None:
        """Let go of the socket."""
        self.closed = True
        self._end.close()

    def _fill(self) -> None:
        received = 0
        while received < _ONE_VISIT and self._end.fileno() >= 0:
            try:
                chunk = self._end.recv(_CHUNK)
            except BlockingIOError:
                return
            except ConnectionError:
                chunk = b""
            if not chunk:
                self.closed = True
                return
            received += len(chunk)
            self._arriving += chunk

    def _make_room(self, droppable: bool) -> bool:
        for index, (old, _) in enumerate(self._outbox):
            if old and droppable:
                del self._outbox[index]
                self.dropped += 1
                return True
        self.dropped += droppable
        return False


def _parse(line: bytes | bytearray) -> tuple[str, Any] | None:
    try:
        envelope = json.loads(line)
        return str(envelope["topic"]), envelope["body"]
    except (ValueError, KeyError, TypeError):
        return None


def plain(value: Any) -> Any:
    """Arrays and their numbers as JSON knows them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a report holds plain values, got {type(value).__name__}")
