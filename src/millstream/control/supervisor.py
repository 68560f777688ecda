"""Closing the gap between what should be and what is."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.control.state import Desired, Intent
from millstream.core.data import Start, Stop, Worker
from millstream.core.errors import EnvLost, MillError, WorkerFailed
from millstream.core.ports import Clock, Host

FAST = 10.0
"""A worker that lived for fewer seconds has made no progress worth the name."""
KILLED = 1.0
"""The same for one that was killed from outside, which is no fault of its own."""
MOST_CRASHES = 5
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0


@dataclass(frozen=True, slots=True)
class Crashes:
    """The recent deaths of one worker."""

    in_a_row: int
    died_at: float

    def retry_at(self) -> float:
        """When to start it again: at once, unless it died soon after its last start too."""
        if self.in_a_row <= 1:
            return self.died_at
        return self.died_at + min(_FIRST_WAIT * 2.0 ** (self.in_a_row - 2), _LONGEST_WAIT)


def reconcile(
    desired: Desired, observed: Sequence[Worker], now: float, crashes: Mapping[str, Crashes] | None = None
) -> list[Start | Stop]:
    """The orders that close the gap. Pure: the same arguments give the same orders."""
    history = crashes or {}
    here = {worker.name: worker for worker in observed}
    wanted = {} if desired.stopping else desired.workers
    orders: list[Start | Stop] = [
        Stop(worker.role, worker.index)
        for worker in observed
        if worker.alive and worker.index >= wanted.get(worker.role, 0)
    ]
    for role, count in wanted.items():
        for index in range(count):
            worker = here.get(f"{role}-{index}")
            if worker is None:
                orders.append(Start(role, index))
            elif not worker.alive and (worker.name not in history or now >= history[worker.name].retry_at()):
                orders.append(Start(role, index, worker.epoch + 1))
    return orders


def failure(desired: Desired, worker: Worker, crashes: Crashes | None) -> str | None:
    """Why a dead worker must not be started again; None when it may."""
    if worker.alive or desired.stopping or worker.index >= desired.workers.get(worker.role, 0):
        return None
    if worker.exit_code == MillError.exit_code:  # it would fail in the same way again
        return f"{worker.name} failed: {worker.error}"
    if crashes is not None and crashes.in_a_row > MOST_CRASHES:
        return f"{worker.name} died {crashes.in_a_row} times in a row without progress; the last time: {worker.error}"
    return None


def remember(worker: Worker, before: Crashes | None, now: float) -> Crashes:
    """The history of a worker after this death."""
    killed = (-signal.SIGKILL, -signal.SIGTERM, EnvLost.exit_code)
    progress = KILLED if worker.exit_code in killed else FAST
    fast = now - worker.started_at < progress
    return Crashes(before.in_a_row + 1 if fast and before else int(fast), now)


class Supervisor:
    """A role that keeps a run as it should be, on whatever host there is."""

    def __init__(
        self,
        host: Host,
        intent: Intent,
        clock: Clock,
        report: Callable[[dict[str, Any]], object] = lambda report: None,
    ) -> None:
        self._host = host
        self._report = report
        self._intent = intent
        self._clock = clock
        self._crashes: dict[str, Crashes] = {}
        self._buried: set[tuple[str, int]] = set()
        self._asked: set[tuple[str, int]] = set()
        self.replaced = 0
        """How many workers were started in the place of a dead one."""

    def step(self) -> int:
        """Look, compare, act; WorkerFailed when acting would not help."""
        now, observed = self._clock.now(), self._host.workers()
        for worker in observed:
            self._notice(worker, now)
        orders = reconcile(self._intent.desired, observed, now, self._crashes)
        epochs = {(worker.role, worker.index): worker.epoch for worker in observed}
        return sum(self._act(order, epochs.get((order.role, order.index), 0)) for order in orders)

    def done(self) -> bool:
        """Whether the run should stop and all its workers have."""
        return self._intent.desired.stopping and not any(worker.alive for worker in self._host.workers())

    def _notice(self, worker: Worker, now: float) -> None:
        life = (worker.name, worker.epoch)
        if worker.alive or life in self._buried:
            return
        self._buried.add(life)
        if life in self._asked:
            self._crashes.pop(worker.name, None)
            return
        if worker.role == "learner" and worker.exit_code == 0:
            if not self._intent.desired.stopping:
                self._intent.desired = self._intent.desired.change(stopping=True, stopped_by="steps")
            return
        self._crashes[worker.name] = remember(worker, self._crashes.get(worker.name), now)
        ended = f"{worker.name} died: {worker.error or 'it ended by itself'}"
        self._report({"kind": "event", "level": "warning", "text": ended, "at": now})
        text = failure(self._intent.desired, worker, self._crashes[worker.name])
        if text is not None:
            raise WorkerFailed(text)

    def _act(self, order: Start | Stop, epoch: int) -> int:
        if isinstance(order, Start):
            self._host.start(order)
            self.replaced += order.epoch > 0
            return 1
        life = (f"{order.role}-{order.index}", epoch)
        if life in self._asked:
            return 0  # it is on its way out
        self._asked.add(life)
        self._host.stop(order)
        return 1
