"""The one producer of a worker, and a new one in its place when it has broken for good."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millstream.core.errors import Unavailable
from millstream.wires.kafka.cluster import Cluster, unmixed, words

Heard = Callable[[KafkaError | None, Message], None]
_GONE = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL, KafkaError._STATE)


class Outlet:
    """Takes messages for the broker. Nothing here waits, but for `flush`."""

    def __init__(self, cluster: Cluster, more: Mapping[str, Any] | None = None) -> None:
        self._cluster, self._more = cluster, more
        self._producer: Producer = cluster.producer(more)
        self._broken = False
        self.renewed: list[Callable[[], None]] = []
        """Who wants to know that what was not acknowledged is lost with the old client."""

    @property
    def waiting(self) -> int:
        """Messages that were not acknowledged."""
        return len(self._producer)

    def send(
        self,
        topic: str,
        key: str,
        value: bytes,
        *,
        partition: int | None = None,
        headers: Mapping[str, str] | None = None,
        heard: Heard | None = None,
    ) -> bool:
        """Put a message on its way; False: the queue to the broker is full."""
        more: dict[str, Any] = {} if partition is None else {"partition": partition}
        if headers:
            more["headers"] = [(name, text.encode()) for name, text in headers.items()]
        try:
            self._producer.produce(topic, value, key, on_delivery=heard, **more)
            return True
        except BufferError:
            return False
        except KafkaException as error:
            if not self.breaks(error.args[0]):
                raise Unavailable(f"{topic} does not take messages: {words(error)}") from error
            return False

    def look(self) -> None:
        """Hear what was acknowledged; start anew with a client that has given up."""
        self._hear(lambda: self._producer.poll(0))
        if self._broken:
            self._producer.purge()
            self._hear(lambda: self._producer.poll(0))  # who sent what was thrown away hears of it
            self._broken = False
            self._producer = self._cluster.producer(self._more)
            for tell in self.renewed:
                tell()

    def flush(self, seconds: float) -> bool:
        """Wait until all is acknowledged; False when it is not by then."""
        self._hear(lambda: self._producer.flush(seconds))
        return not self._broken and self.waiting == 0

    def breaks(self, error: KafkaError) -> bool:
        """Whether the client can never go on after this: what it held is sent again by another."""
        if error.fatal() or error.code() in _GONE:
            self._broken = True
        return self._broken

    def _hear(self, listen: Callable[[], object]) -> None:
        """Run callbacks; a fatal error is raised there."""
        try:
            with unmixed():
                listen()
        except KafkaException as error:
            if not self.breaks(error.args[0]):
                raise Unavailable(f"the brokers do not take messages: {words(error)}") from error
