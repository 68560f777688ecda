"""Rollouts out of the log: the learner's half.

What cannot be learnt from is put aside with its reason; nothing stops here.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from millstream.core.codec import decode
from millstream.core.data import Delivery, Rollout, Stamp
from millstream.core.errors import CodecError
from millstream.wires.kafka.cluster import PART_BYTES, PATIENCE, Cluster, partitions_of
from millstream.wires.kafka.dead import DeadLetters
from millstream.wires.kafka.gathering import Gathered, Gathering, Lives
from millstream.wires.kafka.looking import watermarks
from millstream.wires.kafka.notes import Life, Note, note_of
from millstream.wires.kafka.outlet import Outlet
from millstream.wires.kafka.parts import join
from millstream.wires.kafka.topics import LANES, Names

Admit = Callable[[Rollout], str | None]
"""Why a rollout must not be learnt from; None when it may."""
Refused = tuple[int, int, int, int, str]
"""Actor, epoch, sequence, steps, and the reason."""
_OVERSIZED = 2 * PART_BYTES
_GONE = (
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
)  # fmt: skip
"""What is said of a topic that was taken away; for a moment, also of one that was just made."""


@dataclass(slots=True)
class _Lane:
    """One partition: what was read of it and is not done with."""

    cursor: int | None = None
    """The next offset to read; None before anything was."""
    held: dict[tuple[int, int, int], tuple[int, Stamp]] = field(default_factory=dict)
    """Offsets and stamps of rollouts that were delivered and not released, in their order."""
    gathering: Gathering[Rollout | CodecError] = field(default_factory=Gathering)

    def settled(self) -> int | None:
        """Everything before this offset is done with."""
        unfinished = self.gathering.oldest()
        waiting = [offset for offset, _ in self.held.values()] + ([] if unfinished is None else [unfinished])
        return min(waiting, default=self.cursor)


class Paying(Protocol):
    """Who gives credit back to actors."""

    def release(self, actor: int, epoch: int, sequence: int) -> None:
        """This rollout of an actor's life, and those before, are done with."""

    def remember(self, actor: int, epoch: int, sequence: int) -> None:
        """They were before: it is said again with whatever is said next."""


class Experiences:
    """A reader of the whole log of a run, from its beginning unless told otherwise."""

    def __init__(
        self, cluster: Cluster, names: Names, run: str, policies: Paying, outlet: Outlet | None, admit: Admit
    ) -> None:
        """Without an outlet, what is bad is only counted: who looks back writes nothing."""
        self._topic, self._run = names.experiences, run
        self._policies, self._admit = policies, admit
        self._letters = DeadLetters(outlet, names.dead)
        self._lanes = [_Lane() for _ in range(LANES)]
        self._sought: dict[int, int] = {}
        self._seen, self._done = Lives(), Lives()  # what was read, and of it what is done with: this is kept
        self._refused: list[Refused] = []
        self._gaps: dict[str, tuple[int, int]] = {}
        self._gone_since: float | None = None
        self._incomplete = 0
        self.foreign = self.duplicates = 0
        """Messages of other runs, and messages of rollouts that came before."""
        self._consumer: Consumer = cluster.consumer()
        self.seek({})

    @property
    def dead(self) -> Counter[str]:
        """Messages put aside, by reason."""
        return self._letters.counts

    @property
    def incomplete(self) -> int:
        """Rollouts whose actor died while it sent them."""
        return self._incomplete + sum(lane.gathering.incomplete for lane in self._lanes)

    # --- the port ----------------------------------------------------------------------------------------------------

    def poll(self, limit: int) -> list[Delivery[Rollout]]:
        """What has arrived and can be learnt from."""
        if not self._letters.send():
            return []  # what is bad does not pile up here while the broker is away
        deliveries = []
        for message in self._consumer.consume(limit, timeout=0):
            if message.error() is not None:
                self._hear(message.error())
                continue
            found = self._take(message)
            if found is not None:
                deliveries.append(found)
        self._letters.send()
        self._look_for_topic()
        return deliveries

    def release(self, stamp: Stamp) -> None:
        """This rollout and those before it from its actor are done with."""
        held = self._lanes[stamp.actor % LANES].held
        if stamp.identity not in held:
            return  # released already
        own = [identity for identity in held if identity[0] == stamp.actor]
        done = own[: own.index(stamp.identity) + 1]
        for actor, epoch, sequence in done:
            del held[actor, epoch, sequence]
            self._done.reach((actor, epoch), sequence)
        for life in {identity[:2] for identity in done}:
            self._credit(life)

    def positions(self) -> Mapping[str, int]:
        """Partition -> the offset before which everything is done with."""
        settled = {index: lane.settled() for index, lane in enumerate(self._lanes)}
        return {source_of(index): offset for index, offset in settled.items() if offset is not None}

    def seek(self, positions: Mapping[str, int]) -> None:
        """Read again from there what is not done with; from the beginning where nothing is said."""
        self._sought = {index: positions[source_of(index)] for index in range(LANES) if source_of(index) in positions}
        self._incomplete = self.incomplete
        self._lanes = [_Lane(cursor=self._sought.get(index)) for index in range(LANES)]
        self._seen = Lives(self._done.rows())
        self._gaps = {}
        self._ends: list[tuple[int, int]] | None = None
        self._consumer.assign(
            partitions_of(self._topic, LANES, lambda index: self._sought.get(index, OFFSET_BEGINNING))
        )

    # --- what a checkpoint keeps -------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """Where everything before is done with, how far each actor was, and what was refused and not told."""
        refused = [list(each) for each in self._refused]
        return {"positions": dict(self.positions()), "lives": self._done.rows(), "refused": refused}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue there: what comes is what was not done with, once. Actors hear again what they may have missed."""
        self._done = Lives(snapshot["lives"])
        self._refused = [(*each[:4], each[4]) for each in snapshot.get("refused", ())]
        self.seek(snapshot["positions"])
        for actor, epoch in self._done:
            self._policies.remember(actor, epoch, self._done.last((actor, epoch)))

    def refused(self) -> list[Refused]:
        """Rollouts that were refused since the last call."""
        told, self._refused = self._refused, []
        return told

    def trimmed(self) -> dict[str, tuple[int, int]]:
        """Source -> the offset that should have been read next, and the oldest that is still kept. The broker is asked.

        An offset beyond the end was sought in another log: this one was made anew.
        """
        for index, wanted in self._sought.items():
            low, high = watermarks(self._consumer, self._topic, index)
            if not low <= wanted <= high:
                self._gaps.setdefault(source_of(index), (wanted, low))
        return dict(self._gaps)

    def ended(self) -> bool:
        """Whether all is read that the log held when this was first asked."""
        if self._ends is None:
            self._ends = [watermarks(self._consumer, self._topic, index) for index in range(LANES)]
        bounds = zip(self._lanes, self._ends, strict=True)
        return all(low == high or (lane.cursor or 0) >= high for lane, (low, high) in bounds)

    def close(self) -> None:
        """Let go."""
        self._letters.send()
        self._consumer.close()

    # --- one message -------------------------------------------------------------------------------------------------

    def _take(self, message: Message) -> Delivery[Rollout] | None:
        lane = self._lanes[message.partition()]
        if lane.cursor is not None and message.offset() != lane.cursor:
            self._note_gap(message, lane.cursor)
        lane.cursor = message.offset() + 1
        note = note_of(message)
        if note is not None and note.run != self._run:
            self.foreign += 1
            return None
        if note is not None and self._seen.know(note):
            self.duplicates += 1
            return None
        try:
            part: Rollout | CodecError = self._open(message, note)
        except CodecError as error:
            self._letters.put(message, error)
            part = error
        if note is None:
            return None
        gathered = lane.gathering.add(note, message.offset(), part)
        return self._conclude(lane, message, gathered) if gathered else None

    def _open(self, message: Message, note: Note | None) -> Rollout:
        """One part; CodecError when it is not what it should be."""
        body = message.value() or b""
        if len(body) > _OVERSIZED:
            raise CodecError(f"a message of {len(body):,} bytes", reason="oversized")
        part = decode(body)
        told = note is not None and note.actor % LANES == message.partition()
        if note is None or not told or (part.stamp.experiment, part.stamp.identity) != (note.run, note.identity):
            raise CodecError("its headers do not say what it holds", reason="headers")
        return part

    def _conclude(
        self, lane: _Lane, message: Message, gathered: Gathered[Rollout | CodecError]
    ) -> Delivery[Rollout] | None:
        """A rollout is whole: deliver or refuse it."""
        note = gathered.note
        try:
            rollout = self._joined(gathered)
        except CodecError as error:
            if error not in gathered.parts.values():  # a part that was bad alone lies there already
                self._letters.put(message, error)
            self._refuse(note, error.reason)
            return None
        self._seen.reach(note.life, note.sequence)
        lane.held[note.identity] = (gathered.offset, rollout.stamp)
        return Delivery(rollout, source_of(message.partition()), gathered.offset)

    def _joined(self, gathered: Gathered[Rollout | CodecError]) -> Rollout:
        parts = []
        for part in gathered.in_order():
            if isinstance(part, CodecError):
                raise part
            parts.append(part)
        rollout = join(parts)
        if rollout.count != gathered.note.steps:
            raise CodecError(f"its headers say {gathered.note.steps} steps, it has {rollout.count}", reason="headers")
        objection = self._admit(rollout)
        if objection is not None:
            raise CodecError(f"a rollout that must not be learnt from: {objection}", reason=objection.split(":")[0])
        return rollout

    def _refuse(self, note: Note, reason: str) -> None:
        self._seen.add(note.life, note.sequence)
        self._done.add(note.life, note.sequence)
        self._refused.append((*note.identity, note.steps, reason))
        self._credit(note.life)

    def _credit(self, life: Life) -> None:
        """Tell the actor how far we are."""
        if self._done.last(life) >= 0:
            self._policies.release(*life, self._done.last(life))

    def _note_gap(self, message: Message, wanted: int) -> None:
        """Offsets are missing: trimmed away, or marks of a transaction, which are nothing to us."""
        place = TopicPartition(self._topic, message.partition())
        low, _ = self._consumer.get_watermark_offsets(place, cached=True)
        if wanted < low or message.offset() < wanted:
            self._gaps.setdefault(source_of(message.partition()), (wanted, message.offset()))

    def _hear(self, error: KafkaError) -> None:
        """Most of what a client complains of passes; that the topic is not there is looked into."""
        if error.code() in _GONE and self._gone_since is None:
            self._gone_since = time.monotonic()

    def _look_for_topic(self) -> None:
        """Unavailable when the topic was taken away, and not just made."""
        if self._gone_since is not None and time.monotonic() - self._gone_since > PATIENCE:
            watermarks(self._consumer, self._topic, 0)
            self._gone_since = None


def source_of(partition: int) -> str:
    """What a partition is called in positions."""
    return f"actor-{partition}"


def partition_of(source: str) -> int:
    """The inverse."""
    return int(source.removeprefix("actor-"))
