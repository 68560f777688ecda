"""Small topics that all runs of a broker share: commands and metrics, as JSON under the name of their run."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from millstream.core.data import Delivery, Stamp
from millstream.core.errors import Unavailable
from millstream.wires.kafka.cluster import PATIENCE, Cluster, some, words
from millstream.wires.kafka.looking import watermarks


class Reports:
    """One reader of such a topic, who sees what belongs to its run."""

    def __init__(self, cluster: Cluster, topic: str, run: str, since: float | None = None) -> None:
        self._topic, self._run = topic, run.encode()
        self.foreign = self.damaged = 0
        """Messages of other runs, and messages that are no JSON objects."""
        self._consumer: Consumer = cluster.consumer({"enable.partition.eof": True, "fetch.wait.max.ms": 100})
        self._cursor = OFFSET_BEGINNING if since is None else self._at(since)
        self._consumer.assign([TopicPartition(topic, 0, self._cursor)])

    def poll(self, limit: int) -> list[Delivery[Any]]:
        """What has arrived."""
        return self._sort(self._consumer.consume(limit, timeout=0))

    def catch_up(self) -> list[Delivery[Any]]:
        """Everything up to now; it is waited for."""
        _, end = watermarks(self._consumer, self._topic, 0)
        found: list[Delivery[Any]] = []
        ends = time.monotonic() + PATIENCE
        while self._cursor < end:
            messages = some(self._consumer, 1000, 0.5)
            found += self._sort(messages)
            if messages:
                ends = time.monotonic() + PATIENCE
            elif time.monotonic() > ends:
                raise Unavailable(f"{self._topic} stopped answering at offset {self._cursor} of {end}")
        return found

    def release(self, stamp: Stamp) -> None:
        """Nothing to give back."""

    def positions(self) -> Mapping[str, int]:
        """The next position to read."""
        return {self._topic: max(0, self._cursor)}

    def seek(self, positions: Mapping[str, int]) -> None:
        """Read from there."""
        self._cursor = positions.get(self._topic, OFFSET_BEGINNING)
        self._consumer.assign([TopicPartition(self._topic, 0, self._cursor)])

    def close(self) -> None:
        """Let go."""
        self._consumer.close()

    def _sort(self, messages: list[Message]) -> list[Delivery[Any]]:
        found = []
        for message in messages:
            if message.error() is not None:
                if message.error().code() == KafkaError._PARTITION_EOF:  # marks of transactions have offsets too
                    self._cursor = max(self._cursor, message.offset())
                continue
            self._cursor = message.offset() + 1
            if message.key() != self._run:
                self.foreign += 1
                continue
            body = _object(message.value())
            if body is None:
                self.damaged += 1
            else:
                found.append(Delivery(body, self._topic, message.offset()))
        return found

    def _at(self, since: float) -> int:
        """The first message from that time on; the end of the log as it is now when there is none."""
        _, end = watermarks(self._consumer, self._topic, 0)
        asked = [TopicPartition(self._topic, 0, int(since * 1000))]
        try:
            found = int(self._consumer.offsets_for_times(asked, timeout=PATIENCE)[0].offset)
        except KafkaException as error:
            raise Unavailable(f"{self._topic} cannot be read: {words(error)}") from error
        return found if found >= 0 else end


def _object(value: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(value or b"")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
