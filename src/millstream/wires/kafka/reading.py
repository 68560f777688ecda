"""Rollouts out of the log: the learner's half. What cannot be learnt from is put aside with its reason; nothing stops here."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message

from millstream.core.codec import decode
from millstream.core.data import Delivery, Rollout, Stamp
from millstream.core.errors import CodecError
from millstream.wires.kafka.cluster import PART_BYTES, Cluster, partitions_of
from millstream.wires.kafka.outlet import Outlet
from millstream.wires.kafka.parts import join
from millstream.wires.kafka.policies import KafkaPolicies
from millstream.wires.kafka.topics import LANES, Names

Admit = Callable[[Rollout], str | None]
"""Why a rollout must not be learnt from; None when it may."""
Refused = tuple[int, int, int, int, str]
"""Actor, epoch, sequence, steps, and the reason."""
_OVERSIZED = 2 * PART_BYTES
_EVIDENCE = 64 << 10
"""How much of a bad message is kept."""
_MOST_LIVES = 4096


@dataclass(slots=True)
class _Note:
    """What the headers of a message say."""

    run: str
    actor: int
    epoch: int
    sequence: int
    steps: int
    part: int
    parts: int

    @property
    def life(self) -> tuple[int, int]:
        return self.actor, self.epoch


@dataclass(slots=True)
class _Unfinished:
    """A rollout of which parts are missing."""

    offset: int
    parts: dict[int, Rollout] = field(default_factory=dict)


@dataclass(slots=True)
class _Lane:
    """One partition: what was read of it and is not done with."""

    cursor: int | None = None
    """The next offset to read; None before anything was."""
    held: deque[tuple[int, Stamp]] = field(default_factory=deque)
    """Offsets and stamps of rollouts that were delivered and not released."""
    refused: deque[tuple[int, Refused]] = field(default_factory=deque)
    """Offsets and stamps of rollouts that were refused and not told."""
    unfinished: dict[tuple[int, int, int], _Unfinished] = field(default_factory=dict)

    def settled(self) -> int | None:
        """Everything before this offset is done with."""
        waiting = [offset for line in (self.held, self.refused) for offset, _ in [*line][:1]]
        waiting += [each.offset for each in self.unfinished.values()]
        return min(waiting, default=self.cursor)


class Experiences:
    """A reader of the whole log of a run, from its beginning unless told otherwise."""

    def __init__(
        self, cluster: Cluster, names: Names, run: str, policies: KafkaPolicies, outlet: Outlet, admit: Admit
    ) -> None:
        self._names, self._run = names, run
        self._policies, self._outlet, self._admit = policies, outlet, admit
        self._lanes = [_Lane() for _ in range(LANES)]
        self._seen: dict[tuple[int, int], int] = {}  # life -> last sequence that was read
        self._done: dict[tuple[int, int], int] = {}  # the same, of what is done with: this is kept
        self.foreign = self.duplicates = self.incomplete = 0
        """Messages of other runs, messages that came twice, and rollouts whose actor died while it sent them."""
        self.dead: Counter[str] = Counter()
        """Messages put aside, by reason."""
        self._consumer: Consumer = cluster.consumer()
        self.seek({})

    # --- the port ----------------------------------------------------------------------------------------------------

    def poll(self, limit: int) -> list[Delivery[Rollout]]:
        """What has arrived and can be learnt from."""
        deliveries = []
        for message in self._consumer.consume(limit, timeout=0):
            if message.error() is None:
                found = self._take(message)
                if found is not None:
                    deliveries.append(found)
        return deliveries

    def release(self, stamp: Stamp) -> None:
        """This rollout and those before it from its actor are done with."""
        lane = self._lanes[stamp.actor % LANES]
        at = next((at for at, (_, held) in enumerate(lane.held) if held.identity == stamp.identity), None)
        if at is None:
            return  # released already
        done = [held for _, held in list(lane.held)[: at + 1] if held.actor == stamp.actor]
        lane.held = deque(each for each in lane.held if each[1] not in done)
        for held in done:
            self._note_done((held.actor, held.epoch), held.sequence)
        self._policies.release(stamp.actor, stamp.epoch, stamp.sequence)

    def positions(self) -> Mapping[str, int]:
        """Partition -> the offset before which everything is done with."""
        settled = {index: lane.settled() for index, lane in enumerate(self._lanes)}
        return {_source(index): offset for index, offset in settled.items() if offset is not None}

    def seek(self, positions: Mapping[str, int]) -> None:
        """Read from there, what was released before included; from the beginning where nothing is said."""
        self._lanes = [_Lane(cursor=positions.get(_source(index))) for index in range(LANES)]
        self._seen = dict(self._done)

        def offset(index: int) -> int:
            return int(positions.get(_source(index), OFFSET_BEGINNING))

        self._consumer.assign(partitions_of(self._names.experiences, LANES, offset))

    # --- what a checkpoint keeps -------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """Where everything before is done with, and how far each actor was."""
        lives = [[actor, epoch, sequence] for (actor, epoch), sequence in self._done.items()]
        return {"positions": dict(self.positions()), "lives": lives}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue there: what comes is what was not done with, once."""
        self._done = {(actor, epoch): sequence for actor, epoch, sequence in snapshot["lives"]}
        self.seek(snapshot["positions"])

    def refused(self) -> list[Refused]:
        """Rollouts that were refused since the last call; now they are done with."""
        told = []
        for lane in self._lanes:
            for _, each in lane.refused:
                self._note_done((each[0], each[1]), each[2])
                told.append(each)
            lane.refused.clear()
        return told

    def close(self) -> None:
        """Let go."""
        self._consumer.close()

    # --- one message -------------------------------------------------------------------------------------------------

    def _take(self, message: Message) -> Delivery[Rollout] | None:
        lane = self._lanes[message.partition()]
        lane.cursor = message.offset() + 1
        note = _note(message)
        if note is not None and note.run != self._run:
            self.foreign += 1
            return None
        if note is not None and note.sequence <= self._seen.get(note.life, -1):
            self.duplicates += 1
            return None
        try:
            return self._deliver(lane, message, note)
        except CodecError as error:
            self._put_aside(lane, message, note, error.reason, str(error))
        return None

    def _deliver(self, lane: _Lane, message: Message, note: _Note | None) -> Delivery[Rollout] | None:
        body = message.value() or b""
        if len(body) > _OVERSIZED:
            raise CodecError(f"a message of {len(body):,} bytes", reason="oversized")
        part = decode(body)
        if part.stamp.experiment != self._run:
            self.foreign += 1
            return None
        if note is None or part.stamp.identity != (note.actor, note.epoch, note.sequence):
            raise CodecError("its headers do not say what it holds", reason="headers")
        rollout, offset = self._whole(lane, message, note, part)
        if rollout is None:
            return None
        self._seen[note.life] = note.sequence
        reason = self._admit(rollout)
        if reason is not None:
            raise CodecError(f"a rollout that must not be learnt from: {reason}", reason=reason.split(":")[0])
        lane.held.append((offset, rollout.stamp))
        return Delivery(rollout, _source(message.partition()), offset)

    def _whole(self, lane: _Lane, message: Message, note: _Note, part: Rollout) -> tuple[Rollout | None, int]:
        """The rollout, once all its parts are there, and the offset at which it begins."""
        if note.parts == 1:
            return part, message.offset()
        key = part.stamp.identity
        unfinished = lane.unfinished.setdefault(key, _Unfinished(message.offset()))
        unfinished.parts[note.part] = part
        if len(unfinished.parts) < note.parts:
            return None, unfinished.offset
        del lane.unfinished[key]
        self._forget_unfinished(lane, note)
        return join([unfinished.parts[index] for index in range(note.parts)]), unfinished.offset

    def _forget_unfinished(self, lane: _Lane, note: _Note) -> None:
        """A rollout of which no more parts can come: its actor has gone on, or another lives in its place."""
        for key in [key for key in lane.unfinished if key[0] == note.actor]:
            del lane.unfinished[key]
            self.incomplete += 1

    def _put_aside(self, lane: _Lane, message: Message, note: _Note | None, reason: str, text: str) -> None:
        """Into the dead letters, under its place in the log: the same one twice is one."""
        self.dead[reason] += 1
        place = f"{message.topic()}/{message.partition()}/{message.offset()}"
        body = message.value() or b""
        headers = {"reason": reason, "text": text[:1000], "offset": str(message.offset()), "bytes": str(len(body))}
        headers |= {"partition": str(message.partition()), "topic": message.topic() or ""}
        self._outlet.send(self._names.dead, place, body[:_EVIDENCE], headers=headers)
        if note is None:
            return
        self._seen[note.life] = max(note.sequence, self._seen.get(note.life, -1))
        told: Refused = (note.actor, note.epoch, note.sequence, note.steps, reason)
        lane.refused.append((message.offset(), told))
        lane.unfinished.pop((note.actor, note.epoch, note.sequence), None)

    def _note_done(self, life: tuple[int, int], sequence: int) -> None:
        self._done[life] = max(sequence, self._done.pop(life, -1))
        while len(self._done) > _MOST_LIVES:
            self._done.pop(next(iter(self._done)))  # not heard of for longest


def _note(message: Message) -> _Note | None:
    """What the headers say; None when they are not ours."""
    headers = dict(message.headers() or ())
    try:
        actor, epoch, sequence = (int(number) for number in headers["id"].split(b"/"))
        part, parts = (int(number) for number in headers["part"].split(b"/"))
        return _Note(headers["run"].decode(), actor, epoch, sequence, int(headers["steps"]), part, parts)
    except (KeyError, ValueError, AttributeError):
        return None


def _source(partition: int) -> str:
    return f"actor-{partition}"
