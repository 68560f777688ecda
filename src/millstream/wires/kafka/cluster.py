"""The brokers: how to reach them, and what went wrong in words."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.core.errors import ConfigError, MissingPart, NotAllowed, Unavailable

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient
except ImportError as error:  # everything of this package goes through here
    raise MissingPart.of("confluent-kafka", "kafka") from error

PATIENCE = 8.0
"""Seconds in which a broker should have answered for the first time."""
PART_BYTES = 1 << 20
"""The largest message, headers and all."""
_SECRET = ("password", "passphrase", "secret", "key.pem", "oauthbearer.config")
_TO_ALL = {
    "allow.auto.create.topics": False,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "log_level": 0,  # errors come by callback, and are told once, in our words
}
_SILENT = logging.getLogger("millstream.kafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
_TO_PRODUCERS = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 0,
    "message.timeout.ms": 0,  # never given up: what waits is bounded by credit
    "message.max.bytes": 2 * PART_BYTES,
    "queue.buffering.max.kbytes": 1 << 18,
}
_TO_CONSUMERS = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "check.crcs": True,
    "fetch.error.backoff.ms": 50,
    "fetch.queue.backoff.ms": 50,
    "queued.max.messages.kbytes": 1 << 16,
}


@dataclass
class Cluster:
    """The brokers of a run, and the settings with which its clients speak to them."""

    bootstrap: str
    client: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the client library; secrets as `file:PATH` or `env:NAME`."""
    compression: str = "lz4"
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    troubles: dict[int, str] = field(default_factory=dict, repr=False)
    """The last complaint of each kind that a client made, by its code."""

    def __post_init__(self) -> None:
        refuse_plain_secrets(self.client)

    def producer(self, more: Mapping[str, Any] | None = None) -> Producer:
        """Acknowledged by all replicas, each message once."""
        return self._made(Producer, _TO_PRODUCERS, {"compression.type": self.compression}, more or {})

    def consumer(self, more: Mapping[str, Any] | None = None) -> Consumer:
        """Reads what was committed, from where it is told to."""
        return self._made(Consumer, _TO_CONSUMERS, {"group.id": "millstream"}, more or {})

    def admin(self) -> AdminClient:
        """For topics."""
        return self._made(AdminClient)

    def check(self, patience: float = 5.0) -> dict[str, int]:
        """All topics and how many partitions each has; one clear error when no broker answers or lets us in."""
        self.troubles.clear()
        admin, ends = self.admin(), time.monotonic() + patience
        while True:
            try:
                return {name: len(each.partitions) for name, each in admin.list_topics(timeout=1.0).topics.items()}
            except KafkaException as error:
                admin.poll(0)
                self._give_up_on_refusal()
                if time.monotonic() >= ends:
                    raise self._unreachable() from error

    def _give_up_on_refusal(self) -> None:
        text = self.troubles.get(KafkaError._AUTHENTICATION) or self.troubles.get(KafkaError._SSL)
        if text:
            raise NotAllowed(
                f"the brokers at {self.bootstrap} refused us: {text}; "
                "check kafka.client (sasl.*, ssl.*) and its secrets"
            )

    def _unreachable(self) -> Unavailable:
        said = next(iter(self.troubles.values()), "no answer")
        return Unavailable(
            f"no Kafka broker answers at {self.bootstrap} ({said}); is it running? kafka.bootstrap says where to look"
        )

    def _made(self, kind: Callable[..., Any], *layers: Mapping[str, Any]) -> Any:
        settings = self._settings(*layers)
        try:
            return kind(settings, logger=_SILENT)
        except KafkaException as error:
            text = words(error)
            for name in filter(is_secret, settings):
                text = text.replace(str(settings[name]), "***")
            raise ConfigError(f"the client library does not take kafka.client as it is: {text}") from None

    def _settings(self, *layers: Mapping[str, Any]) -> dict[str, Any]:
        settings: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "error_cb": self._complained, **_TO_ALL}
        for layer in layers:
            settings |= layer
        return settings | {name: reveal(name, value, self.environ) for name, value in flat(self.client).items()}

    def _complained(self, error: KafkaError) -> None:
        self.troubles[error.code()] = error.str()


def flat(nested: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """{"sasl": {"mechanism": "PLAIN"}} -> {"sasl.mechanism": "PLAIN"}: what dotted options were made into."""
    found: dict[str, Any] = {}
    for name, value in nested.items():
        found |= flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return found


def is_secret(name: str) -> bool:
    """Whether the value of a client setting must not be seen."""
    return any(word in name for word in _SECRET)


def reveal(name: str, value: Any, environ: Mapping[str, str]) -> Any:
    """The value itself, where it only says in which file or variable it is."""
    kind, _, where = str(value).partition(":")
    if not is_secret(name) and kind not in ("file", "env"):
        return value
    if kind == "env":
        if where not in environ:
            raise ConfigError(f"kafka.client.{name} is in the variable {where}, which is not set")
        return environ[where]
    if kind == "file":
        try:
            return Path(where).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"kafka.client.{name} is in the file {where}, which cannot be read: {error}") from error
    raise _plain(name)


def refuse_plain_secrets(client: Mapping[str, Any]) -> None:
    """ConfigError for a secret that stands where everybody reads it."""
    for name, value in flat(client).items():
        if is_secret(name) and not str(value).startswith(("file:", "env:")):
            raise _plain(name)


def _plain(name: str) -> ConfigError:
    return ConfigError(
        f"kafka.client.{name} is a secret and settings are kept in files; say where it is: file:PATH or env:NAME"
    )


def words(error: Exception) -> str:
    """What a client complained of."""
    found = error.args[0] if error.args else error
    return found.str() if isinstance(found, KafkaError) else str(found)


def partitions_of(topic: str, count: int, offset: Callable[[int], int]) -> list[TopicPartition]:
    """All partitions of a topic, each from where it should be read."""
    return [TopicPartition(topic, index, offset(index)) for index in range(count)]


@contextmanager
def unmixed() -> Iterator[None]:
    """A fatal error is raised by whatever call hears of it; when a callback ran in there, both come in one."""
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise


def some(consumer: Consumer, limit: int, patience: float) -> list[Message]:
    """What has arrived; when it is nothing, the first that comes. The client's `consume` would wait for all."""
    first = consumer.poll(patience)
    return [] if first is None else [first, *consumer.consume(limit - 1, timeout=0)]
