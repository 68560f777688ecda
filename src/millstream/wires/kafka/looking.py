"""A look into one partition, from any place up to its end as it is now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from millstream.core.errors import Unavailable
from millstream.wires.kafka.cluster import PATIENCE, Cluster, some, words

_SOON = 50
"""Milliseconds after which a broker says that there is no more."""
_COMMIT = 2.0
"""Seconds in which a transaction that was committed can be read, on a busy broker too."""
_NOT_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
)  # fmt: skip
"""What is said of a topic that has just been made."""


class Looking:
    """A consumer that can be used for several looks, and to follow the partition from there."""

    def __init__(self, cluster: Cluster, topic: str, partition: int = 0) -> None:
        self._topic, self._partition = topic, partition
        self.consumer: Consumer = cluster.consumer({"enable.partition.eof": True, "fetch.wait.max.ms": _SOON})

    def bounds(self) -> tuple[int, int]:
        """The first offset that is kept, and the next that will be written."""
        return watermarks(self.consumer, self._topic, self._partition)

    def read(self, start: int, end: int) -> Iterator[Message]:
        """The committed records from `start` to `end`.

        A transaction that is open there is waited for, unless its writer seems to be dead.
        """
        self.consumer.assign([TopicPartition(self._topic, self._partition, start)])
        ends, at_the_end = time.monotonic() + PATIENCE, False
        while start < end:
            batch = some(self.consumer, 1000, _COMMIT)
            if not batch and at_the_end:
                return
            if not batch and time.monotonic() > ends:
                raise Unavailable(f"{self._topic} stopped answering at offset {start} of {end}")
            for message in batch:
                if message.error() is None:
                    start = message.offset() + 1
                    yield message
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    start, at_the_end = max(start, message.offset()), True

    def tail(self, enough: Callable[[Sequence[Message]], bool]) -> list[Message]:
        """The committed records at the end: as many as are enough, at most all."""
        low, high = self.bounds()
        back = 8
        while True:
            start = max(low, high - back)
            records = list(self.read(start, high))
            if start == low or enough(records):
                return records
            back *= 8

    def close(self) -> None:
        """Let go."""
        self.consumer.close()

    def __enter__(self) -> Looking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def watermarks(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """The first offset that is kept, and the next that will be written."""
    ends = time.monotonic() + PATIENCE
    while True:
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE)
            return low, high
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET or time.monotonic() > ends:
                raise Unavailable(f"{topic} cannot be read: {words(error)}") from error
            time.sleep(0.05)
