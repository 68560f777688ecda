"""Where a run is asked and told: a socket beside its files. One JSON line in, one JSON line out."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import struct
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from millstream.control.commands import as_request, parse
from millstream.control.state import Intent
from millstream.core import errors
from millstream.core.errors import ConfigError, MillError, RunError, UnknownName
from millstream.core.ports import Bus, Clock
from millstream.core.topics import COMMANDS

SOCKET = "run.sock"
"""The name of the socket in a run's folder."""
View = Callable[[Mapping[str, Any]], Any]
"""Answers a request {"view": name, ...} with plain values."""
_LONGEST_PATH = 100  # the kernel's limit is 108 bytes, on some systems 104
_LONGEST_LINE = 1 << 20
_MOST_CLIENTS = 64
_PATIENCE = 10.0  # seconds for a client to take its answer or finish its request


class Desk:
    """A role that answers at a socket: commands change the intent, views are read. Slow clients are not waited for."""

    def __init__(self, path: Path, intent: Intent, bus: Bus, views: Mapping[str, View], clock: Clock) -> None:
        self.path = path
        self._intent = intent
        self._bus = bus
        self._views = views
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._clients: dict[socket.socket, _Client] = {}
        self._server = _listen(path)
        self._inode = path.stat().st_ino
        self._selector.register(self._server, selectors.EVENT_READ)

    def step(self) -> int:
        """Serve whoever is ready; how many requests were answered."""
        did = 0
        for key, events in self._selector.select(0):
            if key.fileobj is self._server:
                self._welcome()
            else:
                did += self._serve(self._clients[key.fileobj], events)  # type: ignore[index]
        if self._clients:
            self._dismiss_the_slow()
        return did

    def close(self) -> None:
        """Hang up, and remove the socket unless it belongs to a later run by now."""
        for client in list(self._clients.values()):
            self._hang_up(client)
        self._selector.close()
        self._server.close()
        if self.path.exists() and self.path.stat().st_ino == self._inode:
            self.path.unlink()

    def answer(self, line: bytes | bytearray) -> dict[str, Any]:
        """What to say to one request; never an exception that is the asker's fault."""
        try:
            return {"ok": True, "result": self._result(_request(line))}
        except MillError as error:
            return {"ok": False, "error": type(error).__name__, "text": str(error)}
        except Exception as error:  # a view with a bug must not end the run that it shows
            traceback.print_exc()
            return {"ok": False, "error": "RunError", "text": f"the run could not answer: {error!r}"}

    def _result(self, request: Mapping[str, Any]) -> Any:
        if "view" in request:
            name = str(request["view"])
            if name not in self._views:
                raise UnknownName.of("view", name, self._views)
            return self._views[name](request)
        if "command" not in request:
            raise ConfigError('a request is {"command": name, ...} or {"view": name, ...}')
        command = parse(request)
        desired = command.apply(self._intent.desired)
        if not self._bus.publish(COMMANDS, as_request(command)):
            raise RunError("the run does not take commands: those given before were not read yet")
        self._intent.desired = desired
        return {"revision": self._intent.desired.revision}

    def _welcome(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):  # no more, or it has gone again
            end, _ = self._server.accept()
            if len(self._clients) >= _MOST_CLIENTS:
                self._hang_up(min(self._clients.values(), key=lambda client: client.since))
            end.setblocking(False)
            self._clients[end] = _Client(end, self._clock.monotonic())
            self._selector.register(end, selectors.EVENT_READ)

    def _serve(self, client: _Client, events: int) -> int:
        lines = client.read() if events & selectors.EVENT_READ else []
        for line in lines:
            client.outbox += json.dumps(self.answer(line), default=_plain).encode() + b"\n"
        client.write()
        if client.gone and not client.outbox:
            self._hang_up(client)
            return len(lines)
        if lines or not client.outbox:
            client.since = self._clock.monotonic()
        reading = 0 if client.gone else selectors.EVENT_READ
        self._selector.modify(client.end, reading | (selectors.EVENT_WRITE if client.outbox else 0))
        return len(lines)

    def _dismiss_the_slow(self) -> None:
        late = self._clock.monotonic() - _PATIENCE
        for client in [each for each in self._clients.values() if each.unfinished and each.since < late]:
            self._hang_up(client)

    def _hang_up(self, client: _Client) -> None:
        self._selector.unregister(client.end)
        del self._clients[client.end]
        client.end.close()


class _Client:
    """One connection: what of a request has come, what of the answers has not left."""

    def __init__(self, end: socket.socket, since: float) -> None:
        self.end = end
        self.since = since
        self.inbox = bytearray()
        self.outbox = bytearray()
        self.gone = False

    @property
    def unfinished(self) -> bool:
        return bool(self.inbox or self.outbox)

    def read(self) -> list[bytearray]:
        try:
            chunk = self.end.recv(65536)
        except BlockingIOError:
            return []
        except OSError:
            chunk = b""
        self.gone = not chunk
        self.inbox += chunk
        *lines, self.inbox = self.inbox.split(b"\n")
        if len(self.inbox) > _LONGEST_LINE:
            lines, self.inbox, self.gone = [*lines, self.inbox[:100]], bytearray(), True
        return lines

    def write(self) -> None:
        try:
            while self.outbox:
                del self.outbox[: self.end.send(self.outbox)]
        except BlockingIOError:
            return
        except OSError:
            self.outbox.clear()
            self.gone = True


def ask(path: Path, request: Mapping[str, Any], timeout: float = 5.0) -> Any:
    """Put one request to a run and give its result; the error that the run answered is raised here."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
        # A timeout of Python's own would make connecting to a busy desk fail at once instead of waiting for a place.
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(timeout), int(timeout % 1 * 1e6)))
        try:
            with _reachable(path) as address:
                end.connect(address)
            end.settimeout(timeout)
            end.sendall(json.dumps(request).encode() + b"\n")
            line = end.makefile("rb").readline()
        except (FileNotFoundError, ConnectionRefusedError) as error:
            sweep(path)  # a root that was killed could not, and in one process there was nobody else
            raise RunError(f"the run in {path.parent} is not running") from error
        except (TimeoutError, BlockingIOError) as error:
            raise RunError(f"the run in {path.parent} did not answer in {timeout:g} s; is it stopped?") from error
        except OSError as error:
            raise RunError(f"the run in {path.parent} cannot be reached: {error}") from error
    if not line.endswith(b"\n"):
        raise RunError(f"the run in {path.parent} ended before it answered")
    answer = json.loads(line)
    if not answer["ok"]:
        raise _error(answer["error"], answer["text"])
    return answer["result"]


def _error(name: str, text: str) -> MillError:
    kind = getattr(errors, name, RunError)
    return kind(text) if isinstance(kind, type) and issubclass(kind, MillError) else RunError(text)


def _request(line: bytes | bytearray) -> Mapping[str, Any]:
    try:
        request = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"a request is one line of JSON; this is not: {error}") from error
    if not isinstance(request, dict):
        raise ConfigError(f"a request is a JSON object, got {type(request).__name__}")
    return request


def _listen(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True)
    _clear(path)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    draft = path.with_name(f".{path.name}")  # a socket that refuses is swept away: it gets its name when it listens
    draft.unlink(missing_ok=True)
    with _reachable(draft) as address:
        server.bind(address)
    draft.chmod(0o600)
    server.listen(_MOST_CLIENTS)
    server.setblocking(False)
    draft.rename(path)
    return server


def sweep(path: Path) -> None:
    """Remove the socket of a root that died; that of one that lives stays."""
    with contextlib.suppress(RunError, OSError):  # the root lives, another was quicker, or it is not ours to remove
        _clear(path)


def _clear(path: Path) -> None:
    """Remove the socket of a dead run; RunError when the run lives."""
    if not path.exists():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, _reachable(path) as address:
        probe.settimeout(1.0)
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError as error:
            raise RunError(f"{path} is in the way: {error}") from error
    raise RunError(f"the run in {path.parent} is running already")


@contextlib.contextmanager
def _reachable(path: Path) -> Iterator[str]:
    """The address of a socket, by way of its folder's descriptor when the path is too long for the kernel."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield str(path)
        return
    if not Path("/proc/self/fd").exists():
        raise RunError(f"{path} is too long for a socket on this system; choose a folder nearer to the root")
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"an answer holds plain values, got {type(value).__name__}")
