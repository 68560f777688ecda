"""Workers as processes of this machine. However the root ends, nothing of it stays."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from millstream.core.data import Start, Stop, Worker
from millstream.core.errors import RunError, WorkerFailed
from millstream.core.ports import Bus, Clock
from millstream.core.topics import COMMANDS, METRICS_ACTORS, METRICS_TRAINING, Report, Topic
from millstream.hosts.heartbeat import TIMEOUT, Pulse

NEWS: Topic[Report] = Topic("worker.news")
"""What a worker tells its host alone: {"kind": "error", "error": class, "text": ...}."""
_RELAYED: dict[str, Topic[Report]] = {topic.name: topic for topic in (METRICS_TRAINING, METRICS_ACTORS)}
ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
"""BLAS with several threads in several processes makes all of them slow; it is read when NumPy is imported."""
WORKER = (sys.executable, "-m", "millstream.role")


class Link(Protocol):
    """The host's end of the line to one worker."""

    closed: bool

    def send(self, topic: Topic[Any], body: Report) -> bool:
        """Put a message on its way."""

    def receive(self) -> list[tuple[str, Any]]:
        """What has arrived."""

    def close(self) -> None:
        """Let go."""


@dataclass(frozen=True)
class Brief:
    """What a worker is told and handed when it starts."""

    order: Mapping[str, Any] = field(default_factory=dict)
    """Plain JSON values: config, folder, whether it starts paused, ..."""
    fds: Mapping[str, int | Sequence[int]] = field(default_factory=dict)
    """Descriptors to inherit, by name; they keep their numbers."""


@dataclass
class _Child:
    order: Start
    process: subprocess.Popen[bytes]
    link: Link
    log: Path
    log_start: int
    started_at: float
    stop_at: float | None = None
    kill_at: float | None = None
    error: str | None = None
    exit_code: int | None = None


class ProcessHost:
    """Starts, hears, stops and reaps workers. It is a role too: `step` carries messages and looks after the children.

    Reports of the workers are published on `bus`, and commands from `bus` go to all workers.
    """

    def __init__(
        self,
        brief: Callable[[Start], Brief],
        connect: Callable[[socket.socket], Link],
        bus: Bus,
        logs: Path,
        clock: Clock,
        environ: Mapping[str, str],
        command: Sequence[str] = WORKER,
        timeout: float = TIMEOUT,
        grace: float = 10.0,
    ) -> None:
        self._brief = brief
        self._connect = connect
        self._bus = bus
        self._logs = logs
        self._clock = clock
        self._environ = {**environ, **ONE_THREAD}
        self._command = list(command)
        self._grace = grace
        self._pulse = Pulse(timeout)
        self._commands = bus.subscribe(COMMANDS, "host")
        self._children: dict[str, _Child] = {}
        self._closed = False
        self._life, self._life_end = os.pipe()  # children get the first; the second is never inherited

    def start(self, order: Start) -> None:
        """Begin to start a worker, in the place of a dead one of its name."""
        before = self._children.get(order.name)
        if before is not None and before.exit_code is None:
            raise RunError(f"{order.name} is running already (process {before.process.pid})")
        mine, theirs = socket.socketpair()
        with theirs:
            try:
                child = self._spawn(order, mine, theirs)
            except OSError as error:
                mine.close()
                raise WorkerFailed(f"{order.name} could not be started: {error}") from error
        self._children[order.name] = child
        self._pulse.heard(order.name, self._clock.monotonic())

    def stop(self, order: Stop) -> None:
        """Ask a worker to finish its step and end; insist after half the grace, kill it after the whole."""
        child = self._children.get(f"{order.role}-{order.index}")
        if child is None or child.exit_code is not None or child.stop_at is not None:
            return
        now = self._clock.monotonic()
        child.stop_at, child.kill_at = now + self._grace / 2, now + self._grace
        child.link.send(COMMANDS, {"command": "stop"})

    def workers(self) -> Sequence[Worker]:
        """What is here now, the dead included until they are replaced."""
        return [_seen(child) for child in self._children.values()]

    def step(self) -> int:
        """Carry messages both ways, reap the dead, end those that overstayed or fell silent."""
        did = self._forward()
        now = self._clock.monotonic()
        for child in self._living():
            did += self._hear(child, now)
            did += self._reap(child)
            self._insist(child, now)
        for name in self._pulse.missing(now):
            child = self._children[name]
            child.error = f"{name} gave no sign of life for {self._pulse.timeout:g} s and was ended"
            self._kill(child)
        return did

    def close(self) -> None:
        """End all workers, with the usual grace, and let go of everything. Closing again changes nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            for child in self._living():
                self.stop(Stop(child.order.role, child.order.index))
            while self._living():
                if not self.step():
                    self._clock.rest(0.005)
        finally:
            for child in self._living():  # somebody lost patience with the grace
                self._kill(child)
                child.exit_code = child.process.wait()
            for descriptor in (self._life, self._life_end):
                os.close(descriptor)

    def _living(self) -> list[_Child]:
        return [child for child in self._children.values() if child.exit_code is None]

    def _spawn(self, order: Start, mine: socket.socket, theirs: socket.socket) -> _Child:
        brief = self._brief(order)
        fds = {**brief.fds, "channel": theirs.fileno(), "life": self._life}
        text = {**brief.order, "role": order.role, "index": order.index, "epoch": order.epoch, "fds": fds}
        self._logs.mkdir(parents=True, exist_ok=True)
        path = self._logs / f"{order.name}.log"
        with path.open("ab") as log, _paper(text) as paper:
            start = log.tell()
            process = subprocess.Popen(
                self._command,
                stdin=paper,
                stdout=log,
                stderr=log,
                pass_fds=list(_flat(fds.values())),
                env=self._environ,
                start_new_session=True,  # Ctrl-C in a terminal is for the root, which stops the workers in order
            )
        return _Child(order, process, self._connect(mine), path, start, self._clock.now())

    def _forward(self) -> int:
        deliveries = self._commands.poll(100)
        for delivery in deliveries:
            for child in self._living():
                child.link.send(COMMANDS, delivery.message)
        return len(deliveries)

    def _hear(self, child: _Child, now: float) -> int:
        messages = child.link.receive()
        for name, body in messages:
            if name == NEWS.name:
                child.error = f"{body.get('error', 'error')}: {body.get('text', '')}"
            elif name in _RELAYED:
                self._bus.publish(_RELAYED[name], body)
        if messages:
            self._pulse.heard(child.order.name, now)
        return len(messages)

    def _reap(self, child: _Child) -> int:
        pid = child.process.pid
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            return 0
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # what it started; before reaping, so that the number is still its own
        code = child.process.wait()
        while self._hear(child, self._clock.monotonic()):
            continue  # its last words
        child.link.close()
        self._pulse.forget(child.order.name)
        child.exit_code = code
        if code and child.error is None:
            child.error = _last_words(child, code)
        return 1

    def _insist(self, child: _Child, now: float) -> None:
        if child.exit_code is not None or child.stop_at is None or child.kill_at is None:
            return
        if now >= child.kill_at:
            self._kill(child)
        elif now >= child.stop_at:
            child.stop_at = math.inf  # once is enough
            child.process.terminate()

    def _kill(self, child: _Child) -> None:
        if child.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.process.pid, signal.SIGKILL)


def _seen(child: _Child) -> Worker:
    order = child.order
    return Worker(
        order.role, order.index, order.epoch, child.process.pid, child.started_at, child.exit_code, child.error
    )


@contextlib.contextmanager
def _paper(text: Mapping[str, Any]) -> Iterator[int]:
    """The order as a file without a path: a pipe would make the root wait for a child that is slow to read."""
    with tempfile.TemporaryFile() as paper:
        paper.write(json.dumps(text).encode())
        paper.seek(0)
        yield paper.fileno()


def _flat(fds: Any) -> Iterator[int]:
    for fd in fds:
        if isinstance(fd, int):
            yield fd
        else:
            yield from fd


def _last_words(child: _Child, code: int) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    with child.log.open("rb") as log:
        log.seek(max(child.log_start, child.log.stat().st_size - 8192))
        lines = log.read().decode(errors="replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return said[-1] if said else f"ended with code {code} and said nothing"
