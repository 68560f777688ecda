"""Weights on a compacted topic, and with them the credit of the actors.

A policy is cut into parts under keys `run/slot/part`, slot = number mod 3, followed by a manifest under `run`, all in
one transaction: whatever compaction removes, the newest manifest and its parts stay. Who reads takes the newest and
skips the rest.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message, TopicPartition

from millstream.core.codec import decode_policy, encode_policy
from millstream.core.data import NONE, Policy, Version, check_newer
from millstream.core.errors import CodecError
from millstream.wires.kafka.announcing import Announcer, standing
from millstream.wires.kafka.cluster import Cluster
from millstream.wires.kafka.looking import Looking
from millstream.wires.kafka.notes import Life
from millstream.wires.kafka.topics import Names

_AT_ONCE = 500
_VISITS = 64
_MOST_LIVES = 1024


class KafkaPolicies:
    """The policy store of a run on Kafka. The learner writes, everybody else reads."""

    def __init__(self, cluster: Cluster, names: Names, run: str) -> None:
        self._cluster, self._names, self._run = cluster, names, run
        self._reader: Reader | None = None
        self._announcer: Announcer | None = None
        self._published = NONE
        self._remembered: dict[Life, int] = {}

    def take_over(self) -> int:
        """Become the run's learner: others are fenced from now on. The epoch that begins."""
        self._announcer = Announcer(self._cluster, self._names, self._run, self._remembered)
        return self._announcer.epoch

    def publish(self, policy: Policy) -> None:
        """Put it on its way; Fenced when it is not newer, or another learner has taken over."""
        check_newer(policy.version, max(self._published, self._writing().found))
        self._writing().announce(policy.version, encode_policy(policy))
        self._published = policy.version

    def latest(self, newer_than: Version = NONE) -> Policy | None:
        """The newest whole policy that has arrived, or None when there is nothing newer than that."""
        reader = self.reading()
        reader.look()
        return reader.policy(newer_than)

    def release(self, actor: int, epoch: int, sequence: int) -> None:
        """An actor may go on: this rollout of it, and those before, are done with."""
        self._writing().credit((actor, epoch), sequence)

    def remember(self, actor: int, epoch: int, sequence: int) -> None:
        """The same of what was done before we came; said by who is the learner, or when this becomes it."""
        self._remembered[actor, epoch] = sequence
        if self._announcer is not None:
            self._announcer.credit((actor, epoch), sequence)

    def released(self, actor: int, epoch: int) -> int:
        """The last sequence of an actor's life that the learner is done with; -1 when none is."""
        reader = self.reading()
        reader.look()
        return reader.credits.get((actor, epoch), -1)

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until what was published is safe."""
        return self._announcer is None or self._announcer.flush(timeout)

    def close(self) -> None:
        """Send what is left, and let go."""
        if self._announcer is not None:
            self._announcer.close()
        if self._reader is not None:
            self._reader.close()

    def reading(self) -> Reader:
        """The reader, from the newest policy on."""
        if self._reader is None:
            self._reader = Reader(self._cluster, self._names, self._run)
        return self._reader

    def _writing(self) -> Announcer:
        if self._announcer is None:
            self.take_over()
        assert self._announcer is not None
        return self._announcer


@dataclass(slots=True)
class _Slot:
    """The parts of one version that have come."""

    version: Version
    parts: dict[int, bytes]


@dataclass(frozen=True, slots=True)
class _Manifest:
    """What a policy is made of."""

    version: Version
    slot: int
    parts: int
    checksum: int

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> _Manifest:
        return cls(Version(*about["version"]), int(about["slot"]), int(about["parts"]), int(about["checksum"]))


class Reader:
    """Follows the topic; nothing here waits, but for finding its place at the start."""

    def __init__(self, cluster: Cluster, names: Names, run: str) -> None:
        self._run = run.encode()
        self._slots: dict[int, _Slot] = {}
        self._manifest: _Manifest | None = None
        self._held: Policy | None = None
        self.credits: dict[Life, int] = {}
        """Actor and epoch -> the last sequence that is done with."""
        self.damaged = 0
        """Policies that did not match their checksum, and records that could not be read."""
        self._looking = Looking(cluster, names.model_updates)
        next_offset = self._begin()
        self._looking.consumer.assign([TopicPartition(names.model_updates, 0, next_offset)])

    def look(self) -> None:
        """Take what has arrived."""
        for _ in range(_VISITS):
            messages = self._looking.consumer.consume(_AT_ONCE, timeout=0)
            for message in messages:
                if message.error() is None:
                    self._take(message)
            if len(messages) < _AT_ONCE:
                return

    def policy(self, newer_than: Version) -> Policy | None:
        """The newest whole one."""
        manifest = self._manifest
        if manifest is not None and (self._held is None or self._held.version < manifest.version):
            self._put_together(manifest)
        return self._held if self._held is not None and self._held.version > newer_than else None

    def close(self) -> None:
        """Let go."""
        self._looking.close()

    def _begin(self) -> int:
        """Take the newest policy and what came after it; the next offset to read."""
        start = standing(self._looking).start
        low, high = self._looking.bounds()
        if start is None:
            return self._take_from(max(low, high - _AT_ONCE), high)
        after = self._take_from(max(low, start), high)
        if self.policy(NONE) is None:  # it was damaged: perhaps one before it was not
            self._take_from(low, high)
        return after

    def _take_from(self, start: int, end: int) -> int:
        after = start
        for message in self._looking.read(start, end):
            self._take(message)
            self.policy(NONE)
            after = message.offset() + 1
        return after

    def _take(self, message: Message) -> None:
        key, value = message.key() or b"", message.value()
        if value is None:
            return
        try:
            if key == self._run:
                about = json.loads(value)
                self._manifest = _Manifest.of(about)
                self._pay(about["credits"])
            elif key == self._run + b"/credits":
                self._pay(json.loads(value)["credits"])
            elif key.startswith(self._run + b"/") and "version" in dict(message.headers() or ()):
                self._put(key, value, dict(message.headers() or ()))
        except (ValueError, KeyError, TypeError, AttributeError):
            self.damaged += 1

    def _put(self, key: bytes, value: bytes, headers: Mapping[str, bytes]) -> None:
        _, slot, part = key.rsplit(b"/", 2)
        epoch, number = headers["version"].split(b".")
        version = Version(int(epoch), int(number))
        there = self._slots.get(int(slot))
        if there is None or there.version != version:
            there = self._slots[int(slot)] = _Slot(version, {})
        there.parts[int(part)] = value

    def _pay(self, credits: Mapping[str, int]) -> None:
        for name, sequence in credits.items():
            actor, epoch = (int(number) for number in name.split("/"))
            # a learner that went back gives again what it gave before: an actor keeps the credit that it has
            sequence = max(sequence, self.credits.pop((actor, epoch), -1))
            self.credits[actor, epoch] = sequence
        while len(self.credits) > _MOST_LIVES:
            del self.credits[next(iter(self.credits))]

    def _parts(self, manifest: _Manifest) -> list[bytes] | None:
        slot = self._slots.get(manifest.slot)
        if slot is None or slot.version != manifest.version or len(slot.parts) < manifest.parts:
            return None
        return [slot.parts[index] for index in range(manifest.parts)]

    def _put_together(self, manifest: _Manifest) -> None:
        self._manifest = None
        try:
            parts = self._parts(manifest)
            body = b"".join(parts or ())
            if parts is None or zlib.crc32(body) != manifest.checksum:
                raise CodecError(f"policy {manifest.version} is not whole")
            self._held = decode_policy(body)
            del self._slots[manifest.slot]
        except (CodecError, KeyError):
            self.damaged += 1  # the one that is held stays
