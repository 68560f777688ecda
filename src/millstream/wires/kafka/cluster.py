"""The brokers: how to reach them, and what went wrong in words."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.core.errors import ConfigError, MissingPart, NotAllowed, Unavailable

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient
except ImportError as error:  # everything of this package goes through here
    raise MissingPart.of("confluent-kafka", "kafka") from error

PATIENCE = 8.0
"""Seconds in which a broker should have answered for the first time."""
PART_BYTES = 1 << 20
"""The largest message, headers and all."""
_SECRET = ("password", "secret", "key.pem", "oauthbearer.config")
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

    def producer(self, **more: Any) -> Producer:
        """Acknowledged by all replicas, each message once."""
        return Producer(self._settings(_TO_PRODUCERS, {"compression.type": self.compression}, more), logger=_SILENT)

    def consumer(self, group: str = "", **more: Any) -> Consumer:
        """Reads what was committed, from where it is told to."""
        return Consumer(self._settings(_TO_CONSUMERS, {"group.id": group or "millstream"}, more), logger=_SILENT)

    def admin(self) -> AdminClient:
        """For topics."""
        return AdminClient(self._settings(), logger=_SILENT)

    def check(self, patience: float = PATIENCE) -> set[str]:
        """The names of all topics; one clear error when no broker answers or lets us in."""
        self.troubles.clear()
        admin, ends = self.admin(), time.monotonic() + patience
        while True:
            try:
                return set(admin.list_topics(timeout=1.0).topics)
            except KafkaException as error:
                admin.poll(0)
                self._give_up_on_refusal()
                if time.monotonic() >= ends:
                    raise self._unreachable() from error

    def _give_up_on_refusal(self) -> None:
        text = self.troubles.get(KafkaError._AUTHENTICATION) or self.troubles.get(KafkaError._SSL)
        if text:
            raise NotAllowed(
                f"the brokers at {self.bootstrap} refused us: {text}; check kafka.client (sasl.*, ssl.*) and its secrets"
            )

    def _unreachable(self) -> Unavailable:
        said = next(iter(self.troubles.values()), "no answer")
        return Unavailable(
            f"no Kafka broker answers at {self.bootstrap} ({said}); is it running? kafka.bootstrap says where to look"
        )

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
    raise ConfigError(
        f"kafka.client.{name} is a secret and settings are kept in files; say where it is: file:PATH or env:NAME"
    )


def words(error: KafkaException) -> str:
    """What a client complained of."""
    found = error.args[0] if error.args else error
    return found.str() if isinstance(found, KafkaError) else str(found)


def partitions_of(topic: str, count: int, offset: Callable[[int], int]) -> list[TopicPartition]:
    """All partitions of a topic, each from where it should be read."""
    return [TopicPartition(topic, index, offset(index)) for index in range(count)]
