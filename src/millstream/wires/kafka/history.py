"""Back into the log: single rollouts by their places, and a count of all that were published."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from millstream.core.codec import decode
from millstream.core.data import Rollout
from millstream.core.errors import CheckpointError, CodecError, Unavailable
from millstream.wires.kafka.cluster import PATIENCE, Cluster, some
from millstream.wires.kafka.gathering import Gathering, Lives
from millstream.wires.kafka.looking import watermarks
from millstream.wires.kafka.notes import Note, note_of
from millstream.wires.kafka.parts import join
from millstream.wires.kafka.reading import partition_of, source_of
from millstream.wires.kafka.topics import LANES, Names

_AHEAD = {"queued.max.messages.kbytes": 8 << 10, "fetch.wait.max.ms": 50, "enable.partition.eof": True}
_NEAR = 256
"""Offsets that are read over rather than jumped over."""


@dataclass(frozen=True, slots=True)
class Published:
    """A whole rollout, as its headers describe it."""

    actor: int
    epoch: int
    sequence: int
    steps: int
    bytes: int
    source: str
    offset: int

    @property
    def identity(self) -> tuple[int, int, int]:
        """What tells it from every other of its run."""
        return self.actor, self.epoch, self.sequence


class Scan:
    """All whole rollouts of a run that the log has now, each once, in the order of each source. Nothing is decoded."""

    def __init__(self, cluster: Cluster, names: Names, run: str) -> None:
        self._cluster, self._topic, self._run = cluster, names.experiences, run
        self.bytes = self.messages = self.duplicates = self.incomplete = self.foreign = 0
        """What was read so far: of everything, of rollouts that came before, never whole, or of other runs."""

    def __iter__(self) -> Iterator[Published]:
        consumer = self._cluster.consumer({"enable.partition.eof": True, "fetch.wait.max.ms": 50})
        try:
            yield from self._read(consumer)
        finally:
            consumer.close()

    def _read(self, consumer: Consumer) -> Iterator[Published]:
        lives = Lives()
        lanes: list[Gathering[int]] = [Gathering() for _ in range(LANES)]
        bounds = [watermarks(consumer, self._topic, index) for index in range(LANES)]
        left = {index: high for index, (low, high) in enumerate(bounds) if low < high}
        consumer.assign([TopicPartition(self._topic, index, bounds[index][0]) for index in left])
        while left:
            batch = _next(consumer, self._topic)
            for message in batch:
                index, end = message.partition(), left.get(message.partition())
                if end is not None and message.error() is None and message.offset() < end:
                    yield from self._take(message, lives, lanes[index])
                if end is not None and _passed(message) >= end:
                    del left[index]
        self.incomplete = sum(lane.incomplete + (lane.oldest() is not None) for lane in lanes)

    def _take(self, message: Message, lives: Lives, lane: Gathering[int]) -> Iterator[Published]:
        size = len(message.value() or b"")
        self.messages += 1
        self.bytes += size
        note = note_of(message)
        if note is None or note.run != self._run:
            self.foreign += 1
            return
        if lives.know(note):
            self.duplicates += 1
            return
        gathered = lane.add(note, message.offset(), size)
        if gathered:
            lives.add(note.life, note.sequence)
            total, source = sum(gathered.in_order()), source_of(message.partition())
            yield Published(*note.identity, note.steps, total, source, gathered.offset)


def scan(cluster: Cluster, names: Names, run: str) -> Scan:
    """What was published; the total size is known when it has been gone through."""
    return Scan(cluster, names, run)


def reread(cluster: Cluster, names: Names, places: Iterable[tuple[str, int]]) -> Iterator[Rollout]:
    """The rollouts that begin at these (source, position), in this order; CheckpointError when one is not kept."""
    lanes: dict[str, _Lane] = {}
    try:
        for source, position in places:
            if source not in lanes:
                prefix, bar, partition = source.rpartition("|")  # in the log of the run that this one is a fork of
                lanes[source] = _Lane(cluster, (Names(prefix) if bar else names).experiences, partition)
            yield lanes[source].rollout(position)
    finally:
        for lane in lanes.values():
            lane.close()


class _Lane:
    """One partition, read mostly forwards."""

    def __init__(self, cluster: Cluster, topic: str, source: str) -> None:
        self._topic, self._source, self._partition = topic, source, partition_of(source)
        self._consumer = cluster.consumer(_AHEAD)
        self._cursor: int | None = None
        self._ready: list[Message] = []

    def rollout(self, position: int) -> Rollout:
        """The one whose first part is there."""
        self._go_to(position)
        first = self._next(position)
        note = note_of(first)
        if first.offset() != position or note is None:
            raise self._lost(position, f"the log goes on at {first.offset()}" if note else "there is no rollout")
        try:
            return self._joined(first, note, position)
        except CodecError as error:
            raise self._lost(position, str(error)) from error

    def _joined(self, message: Message, wanted: Note, position: int) -> Rollout:
        parts: dict[int, Rollout] = {}
        while True:
            note = note_of(message)
            if note is not None and note.identity == wanted.identity:
                parts[note.part] = decode(message.value() or b"")
            if len(parts) >= wanted.parts:
                return join([parts[index] for index in sorted(parts)])
            message = self._next(position)

    def close(self) -> None:
        """Let go."""
        self._consumer.close()

    def _go_to(self, position: int) -> None:
        if self._cursor is not None and 0 <= position - self._cursor <= _NEAR:
            while self._cursor < position:
                self._next(position)
            return
        low, high = watermarks(self._consumer, self._topic, self._partition)
        if not low <= position < high:
            raise self._lost(position, f"the log has {low} to {high - 1}" if low < high else "the log is empty")
        self._ready, self._cursor = [], position
        self._consumer.assign([TopicPartition(self._topic, self._partition, position)])

    def _next(self, position: int) -> Message:
        while True:
            if not self._ready:
                self._ready = _next(self._consumer, self._topic)[::-1]
            message = self._ready.pop()
            if message.error() is None:
                self._cursor = message.offset() + 1
                return message
            if message.error().code() == KafkaError._PARTITION_EOF and message.offset() > position:
                raise self._lost(position, "it was never whole")

    def _lost(self, position: int, why: str) -> CheckpointError:
        return CheckpointError(
            f"the rollout at {position} of {self._source} in {self._topic} is no longer there: {why}; "
            "keep the log for longer: log.keep"
        )


def _next(consumer: Consumer, topic: str) -> list[Message]:
    batch = some(consumer, 1000, PATIENCE)
    if not batch:
        raise Unavailable(f"{topic} stopped answering")
    return batch


def _passed(message: Message) -> int:
    """Everything before this offset has come."""
    if message.error() is None:
        return int(message.offset()) + 1
    return int(message.offset()) if message.error().code() == KafkaError._PARTITION_EOF else -1
