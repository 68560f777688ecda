"""What the tests of services share: services in this process, and as processes of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from millstream.core.data import Params, Policy, Version
from millstream.parameters.server import ParameterServer
from millstream.services import parameters
from millstream.services.serving import Listening, Served

TOKEN = "a-token-that-is-long-enough"


@contextlib.contextmanager
def serving(server: ParameterServer, largest: int = parameters.LARGEST, **listening: Any) -> Iterator[Served]:
    served = Served(Listening(**listening), [parameters.offer(server, largest)])
    served.start()
    try:
        yield served
    finally:
        served.stop()


def policy(size: int, version: Version) -> Policy:
    return Policy(version, Params({"weights": np.zeros(size, np.float32)}))


class Process:
    """`mill service parameters` as a process of its own; ready once it is made."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, "-m", "millstream.doors.cli", "service", "parameters", *options]
        self.process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        self.ready = self.process.stdout.readline()
        self.address = self.ready.partition(" ready at ")[2].split(",")[0].strip()

    @property
    def port(self) -> str:
        return self.address.rpartition(":")[2]

    def __enter__(self) -> Process:
        assert self.address, self.process.communicate(timeout=30)[1]
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=30)

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


class Proxy:
    """Stands between a client and a service, and can lose answers."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._target = host, int(port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.deaf = threading.Event()
        """While it is set, what the service says is lost."""
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break all connections."""
        for pair in self._pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self._pairs = []

    def close(self) -> None:
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                client, _ = self._listening.accept()
                service = socket.create_connection(self._target)
                self._pairs.append((client, service))
                self.connections += 1
                for source, sink, lossy in ((client, service, False), (service, client, True)):
                    threading.Thread(target=self._pump, args=(source, sink, lossy), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, lossy: bool) -> None:
        with contextlib.suppress(OSError):  # it was cut
            while data := source.recv(65536):
                if not (lossy and self.deaf.is_set()):
                    sink.sendall(data)


def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for what should happen."""
    ticks = threading.Event()
    for _ in range(int(seconds / 0.01)):
        if holds():
            return
        ticks.wait(0.01)
    raise AssertionError(f"it did not happen within {seconds} seconds")
