"""A line to a gRPC service: deadlines, the token, trying again, and errors that are ours.

gRPC connects again by itself. What was asked meanwhile is asked again for as long as `patience` lasts; a service does
a change that is asked for twice only once, by the caller and sequence number of `call`.
"""

from __future__ import annotations

import math
import random
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from millstream.core import errors
from millstream.core.clock import SystemClock
from millstream.core.codes import NAME_KEY
from millstream.core.errors import (
    Busy,
    ConfigError,
    MillError,
    MissingPart,
    NotAllowed,
    RunError,
    TimedOut,
    Unavailable,
)
from millstream.core.parts import PART
from millstream.core.ports import Clock

try:
    import grpc
except ImportError as error:
    raise MissingPart.of("gRPC", "grpc") from error

T = TypeVar("T")

_OPTIONS = (
    ("grpc.max_receive_message_length", 4 * PART),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 20_000),  # a machine that lost its power says no goodbye
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.enable_retries", 0),  # only what we try again ourselves is surely done once
)
_RESTS = (0.05, 1.0)
_CODES = {
    grpc.StatusCode.DEADLINE_EXCEEDED: TimedOut,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Busy,
    grpc.StatusCode.UNAUTHENTICATED: NotAllowed,
    grpc.StatusCode.CANCELLED: Unavailable,
}
"""What gRPC itself may say, where no service named an error of ours."""


class Line:
    """A connection to one service, for any number of threads. Make it after a fork, never before."""

    def __init__(
        self,
        address: str,
        token: str | None = None,
        tls: str | Path | None = None,
        timeout: float = 60.0,
        patience: float = 10.0,
        clock: Clock | None = None,
    ) -> None:
        if not (timeout > 0 and patience >= 0):
            raise ConfigError(f"a timeout is above 0 seconds, patience at least 0; got {timeout} and {patience}")
        self.address, self.timeout, self.patience = address, timeout, patience
        self.clock = clock or SystemClock()
        self.channel = _channel(address, tls)
        self._metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        self._threads = threading.local()
        self._closed = False

    def ask(self, work: Callable[..., T], longer: float = 0.0) -> T:
        """`work(timeout=, metadata=)` makes one call, all of it; it is made again while the service is away.

        `longer` is how many seconds the service may take on purpose.
        """
        rest, until = _RESTS[0], math.inf
        while True:
            if self._closed:
                raise RunError(f"the line to {self.address} was closed; make a new one")
            try:
                return work(timeout=self.timeout + longer, metadata=self._metadata)
            except grpc.RpcError as error:
                told = self._translated(error, self.timeout + longer)
                away = isinstance(told, Unavailable) and not isinstance(told, TimedOut)
                now = self.clock.monotonic()
                until = min(until, now + self.patience)  # from the first time on that it was away
                if not away or now + rest > until:
                    raise told from error
            self.clock.rest(rest * random.uniform(0.5, 1.0))  # apart: many may wait for the same service
            rest = min(rest * 2, _RESTS[1])

    def call(self) -> tuple[str, int]:
        """Who asks, and which of its changes this is: a thread has one under way at a time."""
        if not hasattr(self._threads, "name"):
            self._threads.name, self._threads.sequence = secrets.token_hex(16), 0
        self._threads.sequence += 1
        return self._threads.name, self._threads.sequence

    def close(self) -> None:
        """Let go of the connection; the service goes on."""
        self._closed = True
        self.channel.close()

    def _translated(self, error: Any, limit: float) -> MillError:
        """By its type: the name that the service gave it, else what gRPC itself says."""
        told, details = error.code(), error.details() or ""
        name = dict(error.trailing_metadata() or ()).get(NAME_KEY, "")
        ours = errors.named(str(name), details)
        if ours is not None:
            return ours if not isinstance(ours, NotAllowed) else NotAllowed(f"{self.address}: {details}")
        words = {
            TimedOut: f"did not answer in {limit:g} s, and may or may not have done what was asked; give it more time",
            Unavailable: f"does not answer ({details}); is it running there?",
            Busy: f"takes no more now ({details}); try again, or let it answer more calls at once",
            NotAllowed: f"does not let us in ({details}); give it the token of its token file",
        }
        kind = _CODES.get(told, MillError)
        return kind(f"{self.address} {words.get(kind, f'failed: {told.name}: {details}')}")


def _channel(address: str, tls: str | Path | None) -> Any:
    if tls is None:
        return grpc.insecure_channel(address, options=_OPTIONS)
    try:
        trusted = Path(tls).read_bytes()
    except OSError as error:
        raise ConfigError(f"the certificate {tls} cannot be read: {error.strerror}") from error
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(trusted), options=_OPTIONS)
