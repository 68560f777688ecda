"""How every gRPC service is served: where it listens, who may call, how much at once, and how it ends."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from millstream.core.errors import ConfigError
from millstream.core.parts import PART
from millstream.services.guarding import Guard, Translating

LOOPBACK = "127.0.0.1"
SHORTEST_TOKEN = 16
"""Characters below which a token could be guessed."""
_PING = 10_000


@dataclass(frozen=True)
class Listening:
    """Where a service listens, to whom, and to how much at once."""

    host: str = LOOPBACK
    port: int = 0
    """0: any that is free."""
    token: str | None = field(default=None, repr=False)
    """What callers must know; needed off loopback."""
    tls: tuple[bytes, bytes] | None = field(default=None, repr=False)
    """Certificate chain and key, as PEM."""
    calls: int = 256
    """How many are answered at once; one more is told to come again."""
    message: int = 4 * PART
    """Bytes of the largest message; what is larger travels in parts."""
    grace: float = 10.0
    """Seconds that running calls have to end when the service does."""

    def __post_init__(self) -> None:
        if not (0 <= self.port <= 65535 and self.calls >= 1 and self.message >= 2 * PART and self.grace >= 0):
            raise ConfigError(
                f"a port is 0 to 65535, calls at least 1, a message {2 * PART} bytes, grace 0 seconds; got {self}"
            )
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            raise ConfigError(f"a token has at least {SHORTEST_TOKEN} characters, got {len(self.token)}")
        if self.token is None and not _is_loopback(self.host):
            raise ConfigError(
                f"{self.host} can be reached from other machines, and that needs a token: "
                "put one into a file and name it by --token-file"
            )


@dataclass(frozen=True)
class Offer:
    """One service: its name on the wire, and how it is added to a server."""

    name: str
    add: Callable[[Any], None]


class Served:
    """A server with health, token, limits and a way to end. It listens from the start, and answers once started."""

    def __init__(self, listening: Listening, offers: Sequence[Offer]) -> None:
        self._listening, self._offers = listening, offers
        self._health = health.HealthServicer()
        # As many threads as calls: what is let in is answered, never queued unseen.
        self._threads = ThreadPoolExecutor(listening.calls, "call")
        self._server = _server(listening, self._threads)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        for offer in offers:
            offer.add(self._server)
        self.port = _bound(self._server, listening)
        """The port that it listens at."""

    @property
    def address(self) -> str:
        """What clients are told."""
        return _address(self._listening.host, self.port)

    def start(self) -> None:
        """Begin to answer."""
        self._server.start()
        for name in ("", *(offer.name for offer in self._offers)):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    def drain(self) -> None:
        """Say that we go, take nothing new, and give running calls their time; then all is over."""
        self._health.enter_graceful_shutdown()
        self._end(self._listening.grace)

    def stop(self) -> None:
        """End now; running calls are cut off."""
        self._end(None)

    def _end(self, grace: float | None) -> None:
        self._server.stop(grace).wait()
        self._threads.shutdown(wait=False)


def _server(listening: Listening, threads: ThreadPoolExecutor) -> Any:
    options = (
        ("grpc.so_reuseport", 0),  # or a second service would share the port, and each get half of the calls
        ("grpc.max_receive_message_length", listening.message),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _PING),
    )
    return grpc.server(
        threads,
        interceptors=(Guard(listening.token), Translating()),
        options=options,
        maximum_concurrent_rpcs=listening.calls,
    )


def _bound(server: Any, listening: Listening) -> int:
    address = _address(listening.host, listening.port)
    _check_free(listening.host, listening.port)
    try:
        if listening.tls is None:
            return int(server.add_insecure_port(address))
        certificate, key = listening.tls
        return int(server.add_secure_port(address, grpc.ssl_server_credentials([(key, certificate)])))
    except RuntimeError as error:
        raise ConfigError(f"cannot listen at {address}: the port is taken, or the certificate is no good") from error


def _check_free(host: str, port: int) -> None:
    """gRPC does not say why it cannot listen; the system does."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        why = f"cannot listen at {_address(host, port)}: {error.strerror}"
        raise ConfigError(f"{why}; choose another --port (0 takes any that is free) or --host") from error


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
