"""Signs of life: workers give them, hosts miss them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.core.ports import Bus, Clock
from millstream.core.topics import Report, Topic

PERIOD = 1.0
TIMEOUT = 60.0


class Heartbeat:
    """A role that says once a second that its shell still goes round, and what it is worth knowing about it."""

    def __init__(
        self,
        bus: Bus,
        topic: Topic[Report],
        worker: str,
        epoch: int,
        clock: Clock,
        about: Callable[[], dict[str, Any]] = dict,
        period: float = PERIOD,
    ) -> None:
        self._bus = bus
        self._topic = topic
        self._worker = worker
        self._epoch = epoch
        self._clock = clock
        self._about = about
        self._period = period
        self._due = 0.0

    def step(self) -> int:
        """Report when it is time. Always 0: a heartbeat is no work, and must not keep a shell from resting."""
        now = self._clock.monotonic()
        if now >= self._due:
            self._due = now + self._period
            beat = {"kind": "heartbeat", "worker": self._worker, "epoch": self._epoch, "at": self._clock.now()}
            self._bus.publish(self._topic, {**beat, **self._about()})
        return 0


class Pulse:
    """When each worker was last heard of. Time in which the listener itself was away is nobody's fault."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        self.timeout = timeout
        self._heard: dict[str, float] = {}
        self._listened = 0.0

    def heard(self, worker: str, now: float) -> None:
        """The worker gave a sign of life."""
        self._heard[worker] = now

    def forget(self, worker: str) -> None:
        """The worker has ended."""
        self._heard.pop(worker, None)

    def missing(self, now: float) -> list[str]:
        """Workers that were silent for too long."""
        away = now - self._listened > self.timeout / 4
        self._listened = now
        if away:  # a suspended machine or a stopped root: everyone gets a new chance
            self._heard = dict.fromkeys(self._heard, now)
        return [worker for worker, at in self._heard.items() if now - at > self.timeout]
