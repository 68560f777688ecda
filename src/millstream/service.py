"""The process of a service: from settings to a server that answers until it is told to end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.core import settings
from millstream.core.clock import SystemClock
from millstream.core.errors import ConfigError, UnknownName
from millstream.core.ports import Clock, Role
from millstream.core.settings import setting

if TYPE_CHECKING:
    from millstream.parameters.privacy import Privacy
    from millstream.services.serving import Listening, Served

Ready = Callable[[str], None]
"""Hears the address, once the service answers there."""
_RESTS = (0.02, 0.2)
"""Seconds that the process rests while its calls are answered: also how late it hears that it should end."""


@dataclass(frozen=True)
class ServiceConfig:
    """What every service is asked: where it listens, and to whom."""

    host: str = "127.0.0.1"
    """Where to listen; what other machines can reach needs a token."""
    port: int = setting(0, low=0, high=65535)
    """The port; 0 takes any that is free."""
    token_file: str | None = None
    """A file whose one line callers must know."""
    tls_certificate: str | None = None
    """The certificate chain (PEM) with which the service shows who it is; then everything is encrypted."""
    tls_key: str | None = None
    """The certificate's key (PEM)."""
    calls: int = setting(256, low=1, high=4096)
    """How many calls are answered at once; one more is told to come again."""
    grace: float = setting(10.0, low=0)
    """Seconds that running calls have to end when the service does."""


@dataclass(frozen=True)
class ParametersConfig(ServiceConfig):
    """Parameters that workers push gradients or deltas to."""

    port: int = setting(50055, low=0, high=65535)
    """The port; 0 takes any that is free."""
    mode: str = setting("async", choices=("async", "sync"))
    """`async` applies each push at once; `sync` waits for `quorum` workers, and applies once."""
    quorum: int = setting(1, low=1)
    """How many different workers make a round."""
    aggregation: str = "average"
    """How a round becomes one: average, weighted, federated, median, trimmed_mean."""
    optimiser: str = setting("sgd", choices=("sgd", "add"))
    """`sgd` descends along gradients, `add` adds what is pushed."""
    learning_rate: float = setting(1e-2, above=0)
    """How far `sgd` goes."""
    max_staleness: int | None = setting(None, low=0)
    """How many versions behind a push may be; by default any number in async, none in sync."""
    checkpoint: str | None = None
    """A file from which the server goes on, and which it keeps up to date."""
    checkpoint_seconds: float = setting(30.0, above=0)
    """How often it is written, if anything changed; at the end it always is."""
    clip: float | None = setting(None, above=0)
    """Keep clients private: the largest L2 norm with which a delta counts."""
    noise_multiplier: float = setting(1.0, low=0)
    """With `clip`: the noise on a round's sum, in units of it."""
    sampling_rate: float = setting(1.0, above=0, high=1)
    """With `clip`: the chance with which a client is drawn for a round."""
    delta: float = setting(1e-5, above=0, high=1)
    """With `clip`: the delta for which epsilon is told."""


def configured(name: str, values: Mapping[str, Any]) -> ServiceConfig:
    """The settings of a service, checked."""
    if name not in SERVICES:
        raise UnknownName.of("service", name, SERVICES)
    return settings.parse(SERVICES[name][0], values)


def run(name: str, config: ServiceConfig, ready: Ready, clock: Clock | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C; running calls are finished, and what should be kept is."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what goes wrong is told by our errors, in one line
    SERVICES[name][1](config, ready, clock or SystemClock())


def _parameters(config: ParametersConfig, ready: Ready, clock: Clock) -> None:
    from millstream.control.lock import RunLock
    from millstream.parameters.checkpointing import Checkpointing
    from millstream.parameters.server import ParameterServer
    from millstream.services.parameters import offer
    from millstream.services.serving import Served

    names = ("mode", "quorum", "aggregation", "optimiser", "learning_rate", "max_staleness")
    chosen: dict[str, Any] = {name: getattr(config, name) for name in names}
    server = ParameterServer(**chosen, privacy=_privacy(config))
    served = Served(listening(config), [offer(server)])  # before its file is touched: another may be at work here
    with contextlib.ExitStack() as stack:
        kept: list[Checkpointing] = []
        if config.checkpoint is not None:
            path = Path(config.checkpoint).absolute()
            lock = RunLock(path.parent, path.name, "or choose another --checkpoint")
            stack.callback(lock.close)
            kept.append(Checkpointing(server, path, config.checkpoint_seconds, clock, _complain))
            kept[0].begin()
        serve(served, kept, ready, clock)
        server.close()
        for each in kept:
            each.save()


def serve(served: Served, roles: Sequence[Role], ready: Ready, clock: Clock) -> None:
    """Answer calls and step the roles until told to end; then finish what is running."""
    from millstream.hosts import shell

    with _until_told() as told:
        served.start()
        ready(served.address)
        try:
            shell.run(roles, clock, lambda: bool(told), rests=_RESTS)
        finally:
            served.drain()


@contextlib.contextmanager
def _until_told() -> Iterator[list[int]]:
    """A list that a signal makes true. After the first the next one ends the process at once."""
    told: list[int] = []
    both = (signal.SIGTERM, signal.SIGINT)

    def hear(number: int, frame: Any) -> None:
        told.append(number)
        for each in both:
            signal.signal(each, signal.SIG_DFL)

    before = {each: signal.signal(each, hear) for each in both}
    try:
        yield told
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def listening(config: ServiceConfig) -> Listening:
    """Where a service listens, its files read."""
    from millstream.services.serving import Listening

    tls = None
    if config.tls_certificate is not None or config.tls_key is not None:
        if config.tls_certificate is None or config.tls_key is None:
            raise ConfigError("a certificate and its key go together: --tls-certificate and --tls-key")
        tls = _read(config.tls_certificate, "certificate"), _read(config.tls_key, "key")
    word = None if config.token_file is None else token(config.token_file)
    return Listening(config.host, config.port, word, tls, config.calls, grace=config.grace)


def token(name: str) -> str:
    """The word in a token file."""
    text = _read(name, "token file").decode(errors="replace").strip()
    if not (text.isascii() and text.isprintable() and len(text.split()) == 1):
        raise ConfigError(
            f"the token file {name} should hold one word of ASCII: head -c 32 /dev/urandom | base64 > FILE"
        )
    return text


def _read(name: str, what: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise ConfigError(f"the {what} {name} cannot be read: {error.strerror}") from error


def _privacy(config: ParametersConfig) -> Privacy | None:
    from millstream.parameters.privacy import Privacy

    if config.clip is None:
        return None
    return Privacy(config.clip, config.noise_multiplier, config.sampling_rate, delta=config.delta)


def _complain(text: str) -> None:
    print(f"mill: {text}", file=sys.stderr, flush=True)


SERVICES: dict[str, tuple[type[ServiceConfig], Callable[[Any, Ready, Clock], None]]] = {
    "parameters": (ParametersConfig, _parameters),
}
"""Name -> what it can be told, and how it is served. The docstring of the settings is the help text."""
