"""Small topics that all runs of a broker share: commands and metrics, as JSON under the name of their run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from millstream.core.data import Delivery, Stamp
from millstream.wires.kafka.cluster import PATIENCE, Cluster
from millstream.wires.kafka.topics import watermarks


class Reports:
    """One reader of such a topic, who sees what belongs to its run."""

    def __init__(self, cluster: Cluster, topic: str, run: str, since: float | None = None) -> None:
        self._topic, self._run = topic, run.encode()
        self.foreign = self.damaged = 0
        """Messages of other runs, and messages that are no JSON objects."""
        self._consumer: Consumer = cluster.consumer(**{"enable.partition.eof": True})
        self._cursor = OFFSET_BEGINNING if since is None else self._at(since)
        self._consumer.assign([TopicPartition(topic, 0, self._cursor)])

    def poll(self, limit: int) -> list[Delivery[Any]]:
        """What has arrived."""
        return self._sort(self._consumer.consume(limit, timeout=0))

    def catch_up(self) -> list[Delivery[Any]]:
        """Everything up to now; it is waited for."""
        low, end = watermarks(self._consumer, self._topic, 0)
        found: list[Delivery[Any]] = []
        while max(self._cursor, low) < end:
            messages = self._consumer.consume(1000, timeout=PATIENCE)
            found += self._sort(messages)
            if not messages or any(_at_the_end(message) for message in messages):
                break
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
        """The first message from that time on."""
        asked = [TopicPartition(self._topic, 0, int(since * 1000))]
        return int(self._consumer.offsets_for_times(asked, timeout=PATIENCE)[0].offset)


def _at_the_end(message: Message) -> bool:
    return message.error() is not None and message.error().code() == KafkaError._PARTITION_EOF


def _object(value: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(value or b"")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
