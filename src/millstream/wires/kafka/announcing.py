"""What the learner says to its actors: weights and credit, in transactions, from a thread of its own.

The learner never waits for the broker: of several policies that wait, the newest goes. A second learner of the same run
fences the first by the transactional id; the first hears of it here.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millstream.core.data import NONE, Version
from millstream.core.errors import Fenced, MillError, Unavailable
from millstream.wires.kafka.cluster import PART_BYTES, PATIENCE, Cluster, unmixed, words
from millstream.wires.kafka.looking import Looking
from millstream.wires.kafka.notes import Life
from millstream.wires.kafka.topics import Names

_PART = PART_BYTES - 4096
_SLOTS = 3
_TRANSACTION = 30_000
"""Milliseconds after which the broker gives a transaction up; a policy must be written in this time."""
_ITS_RECORD = 1.0
"""Seconds within which one that has fenced us has written its record."""
_MOST_LIVES = 128
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_Record = tuple[str, bytes, list[tuple[str, bytes]]]
"""Key, value, headers."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What every small record on the topic tells: who the learner is, and where the newest policy is."""

    epoch: int = -1
    version: Version = NONE
    start: int | None = None
    """The offset of the policy's first part."""

    @classmethod
    def of(cls, message: Message) -> Standing | None:
        """As a record tells it; None when it is a part of a policy, or not ours."""
        value = message.value()
        if value is None or not value.startswith(b'{"') or dict(message.headers() or ()).get("version"):
            return None
        try:
            about = json.loads(value)
            version = Version(*about["version"])
            start = message.offset() - about["parts"] if "parts" in about else about["start"]
            return cls(int(about["epoch"]), version, start)
        except (ValueError, KeyError, TypeError):
            return None

    def told(self) -> dict[str, Any]:
        """For a record that is no policy."""
        return {"epoch": self.epoch, "version": [self.version.epoch, self.version.number], "start": self.start}


def standing(looking: Looking) -> Standing:
    """As the newest record tells it."""
    records = looking.tail(lambda records: any(map(Standing.of, records)))
    return next((found for found in map(Standing.of, reversed(records)) if found is not None), Standing())


class Announcer:
    """The one who may write to `model_updates`."""

    def __init__(self, cluster: Cluster, names: Names, run: str, credits: Mapping[Life, int] | None = None) -> None:
        self._cluster, self._topic, self._run = cluster, names.model_updates, run
        self._credits: dict[Life, int] = dict(credits or {})
        self._policy: tuple[Version, bytes] | None = None
        self._dirty, self._busy = bool(credits), False
        self._closes_by: float | None = None
        self._error: MillError | None = None
        self._wake = threading.Condition()
        self._written: int | None = None
        self._producer = self._open()
        found = self._look()
        self.found = found.version
        """The version of the newest policy that stood there before."""
        self.epoch = found.epoch + 1
        """Ours; larger than that of every learner before."""
        self._standing = Standing(self.epoch, found.version, found.start)
        self._say_so()
        self._thread = threading.Thread(target=self._run_thread, name="announcer", daemon=True)
        self._thread.start()

    def announce(self, version: Version, body: bytes) -> None:
        """Put a policy on its way; what went wrong with an earlier one is raised here."""
        with self._wake:
            self._raise()
            self._policy = (version, body)
            self._wake.notify()

    def credit(self, life: Life, sequence: int) -> None:
        """Put an actor's credit on its way."""
        with self._wake:
            self._raise()
            self._credits.pop(life, None)
            self._credits[life] = sequence
            while len(self._credits) > _MOST_LIVES:
                self._credits.pop(next(iter(self._credits)))  # not heard of for longest
            self._dirty = True
            self._wake.notify()

    def flush(self, timeout: float) -> bool:
        """Wait until everything is committed; False when it is not by then."""
        ends = time.monotonic() + timeout
        with self._wake:
            while (self._policy or self._dirty or self._busy) and self._error is None:
                if not self._wake.wait(max(0.0, ends - time.monotonic())) and time.monotonic() >= ends:
                    return False
            self._raise()
        return True

    def close(self) -> None:
        """Say what is left to say, as far as a broker listens."""
        with self._wake:
            self._closes_by = time.monotonic() + PATIENCE
            self._wake.notify()
        self._thread.join(2 * PATIENCE)

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run_thread(self) -> None:
        try:
            while self._say_next():
                pass
        except (MillError, KafkaException) as error:
            with self._wake:
                self._error = error if isinstance(error, MillError) else self._cannot(error)
                self._busy = False
                self._wake.notify_all()

    def _say_next(self) -> bool:
        """Wait for something to say, and say it; False when there is nothing and never will be."""
        with self._wake:
            self._busy = False
            self._wake.notify_all()
            while not (self._policy or self._dirty or self._closes_by):
                self._wake.wait()
            if self._policy is None and not self._dirty:
                return False
            policy, credits = self._policy, dict(self._credits)
            self._policy, self._dirty, self._busy = None, False, True
        self._commit(self._records(policy, credits))
        if policy is not None and self._written is not None:
            self._standing = Standing(self.epoch, policy[0], self._written)
        return True

    def _records(self, policy: tuple[Version, bytes] | None, credits: Mapping[Life, int]) -> list[_Record]:
        """Those of one transaction; the manifest comes last."""
        paid = {f"{actor}/{epoch}": sequence for (actor, epoch), sequence in credits.items()}
        if policy is None:
            return [(f"{self._run}/credits", _json(self._standing.told() | {"credits": paid}), [])]
        version, body = policy
        slot, number = version.number % _SLOTS, f"{version.epoch}.{version.number}".encode()
        parts = [body[start : start + _PART] for start in range(0, len(body), _PART)]
        records: list[_Record] = [
            (f"{self._run}/{slot}/{index}", part, [("version", number)]) for index, part in enumerate(parts)
        ]
        manifest = {
            "version": [version.epoch, version.number],
            "epoch": self.epoch,
            "slot": slot,
            "parts": len(parts),
            "checksum": zlib.crc32(body),
            "credits": paid,
        }
        return [*records, (self._run, _json(manifest), [])]

    def _commit(self, records: Sequence[_Record]) -> None:
        """Until it is done, however long the broker is away."""
        while True:
            try:
                with unmixed():
                    return self._attempt(records)
            except KafkaException as error:
                self._recover(error)

    def _attempt(self, records: Sequence[_Record]) -> None:
        self._written = None
        self._producer.begin_transaction()
        for record in records:
            self._produce(record)
        self._producer.flush(PATIENCE)
        self._insist(self._producer.commit_transaction)

    def _produce(self, record: _Record) -> None:
        key, value, headers = record
        while True:
            try:
                return self._producer.produce(self._topic, value, key, headers=headers, on_delivery=self._heard)
            except BufferError:
                self._producer.poll(0.05)

    def _heard(self, error: KafkaError | None, message: Message) -> None:
        if error is None and self._written is None:
            self._written = message.offset()  # of the first

    def _insist(self, call: Callable[[float], None]) -> None:
        """What only took too long must be called again: the client goes on with it meanwhile.

        Not for ever: when the broker has given the transaction up, it comes to no end.
        """
        ends = time.monotonic() + _TRANSACTION / 1000
        while True:
            try:
                return call(PATIENCE)
            except KafkaException as error:
                if not error.args[0].retriable() or error.args[0].txn_requires_abort() or time.monotonic() > ends:
                    raise
                self._give_up_when_closing(error)

    def _recover(self, error: KafkaException) -> None:
        """After this the transaction can be tried again; Fenced when it must not be."""
        trouble: KafkaError = error.args[0]
        self._give_up_when_closing(error)
        if trouble.code() in _FENCED or trouble.fatal() or not self._aborted():
            self._reopen()

    def _aborted(self) -> bool:
        """Whether the client could forget its transaction at once, and go on; a new client need not."""
        try:
            with unmixed():
                self._producer.abort_transaction(PATIENCE)
        except KafkaException:
            return False
        return True

    def _reopen(self) -> None:
        """The broker gave us up for long silence, or another learner is at work: its record tells which."""
        ends = time.monotonic() + _ITS_RECORD
        while time.monotonic() < ends:
            self._check_fence()
        self._producer = self._open()
        self._check_fence()  # now that whatever another had under way is over

    def _check_fence(self) -> None:
        try:
            epoch = self._look().epoch
        except Unavailable as error:
            self._give_up_when_closing(error)
            epoch = self.epoch  # nobody answers: asked again
        if epoch > self.epoch:
            raise Fenced(f"another learner has taken over {self._run}, so this one must end")

    def _give_up_when_closing(self, error: Exception) -> None:
        if self._closes_by is not None and time.monotonic() > self._closes_by:
            raise Unavailable(f"the last words to {self._topic} were lost: {words(error)}") from error

    # --- beginning ---------------------------------------------------------------------------------------------------

    def _open(self) -> Producer:
        producer = self._cluster.producer(
            {
                "transactional.id": f"{self._topic}.learner",
                "transaction.timeout.ms": _TRANSACTION,
                "message.timeout.ms": _TRANSACTION,
            }
        )
        while True:
            try:
                producer.init_transactions(PATIENCE)
                return producer
            except KafkaException as error:
                self._give_up_when_closing(error)
                if not error.args[0].retriable():
                    raise self._cannot(error) from error

    def _say_so(self) -> None:
        about = self._standing.told() | {"started_at": time.time()}
        self._commit([(f"{self._run}/learner", _json(about), [])])

    def _look(self) -> Standing:
        with Looking(self._cluster, self._topic) as looking:
            return standing(looking)

    def _cannot(self, error: KafkaException) -> Unavailable:
        return Unavailable(f"{self._topic} cannot be written: {words(error)}")

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()
