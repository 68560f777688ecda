"""What the learner says to its actors: weights and credit, in transactions, from a thread of its own.

The learner never waits for the broker: of several policies that wait, the newest goes. A second learner of the same run fences
the first by the transactional id; the first hears of it here.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millstream.core.data import NONE, Version
from millstream.core.errors import Fenced, MillError, Unavailable
from millstream.wires.kafka.cluster import PART_BYTES, PATIENCE, Cluster, words
from millstream.wires.kafka.topics import Names, tail

_PART = PART_BYTES - 4096
_SLOTS = 3
_TRANSACTION = 10_000
"""Milliseconds after which the broker gives a transaction up; readers wait no longer for a dead learner."""
_ITS_RECORD = 1.0
"""Seconds within which one that has fenced us has written its record."""
_MOST_LIVES = 256
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class Announcer:
    """The one who may write to `model_updates`."""

    def __init__(self, cluster: Cluster, names: Names, run: str) -> None:
        self._cluster, self._topic, self._run = cluster, names.model_updates, run
        self._credits: dict[int, tuple[int, int]] = {}
        self._policy: tuple[Version, bytes] | None = None
        self._dirty = self._busy = self._closing = False
        self._error: MillError | None = None
        self._wake = threading.Condition()
        self._producer = self._open()
        self.found = self._last()
        """The version of the newest policy that stood there before."""
        self.epoch = self._last_epoch() + 1
        """Ours; larger than that of every learner before."""
        self._say_so()
        self._thread = threading.Thread(target=self._run_thread, name="announcer", daemon=True)
        self._thread.start()

    def announce(self, version: Version, body: bytes) -> None:
        """Put a policy on its way; what went wrong with an earlier one is raised here."""
        with self._wake:
            self._raise()
            self._policy = (version, body)
            self._wake.notify()

    def credit(self, actor: int, epoch: int, sequence: int) -> None:
        """Put an actor's credit on its way."""
        with self._wake:
            self._raise()
            self._credits.pop(actor, None)
            self._credits[actor] = (epoch, sequence)
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
            self._closing = True
            self._wake.notify()
        self._thread.join(PATIENCE)

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run_thread(self) -> None:
        while True:
            with self._wake:
                self._busy = False
                self._wake.notify_all()
                while not (self._policy or self._dirty or self._closing):
                    self._wake.wait()
                if self._policy is None and not self._dirty:
                    return
                policy, credits = self._policy, dict(self._credits)
                self._policy, self._dirty, self._busy = None, False, True
            try:
                self._commit(self._records(policy, credits))
            except MillError as error:
                with self._wake:
                    self._error, self._busy = error, False
                    self._wake.notify_all()
                return

    def _records(
        self, policy: tuple[Version, bytes] | None, credits: dict[int, tuple[int, int]]
    ) -> list[tuple[str, bytes, list[tuple[str, bytes]]]]:
        """(key, value, headers) of one transaction; the manifest comes last."""
        paid = {str(actor): list(credit) for actor, credit in credits.items()}
        if policy is None:
            return [(f"{self._run}/credits", json.dumps({"epoch": self.epoch, "credits": paid}).encode(), [])]
        version, body = policy
        slot, number = version.number % _SLOTS, f"{version.epoch}.{version.number}".encode()
        parts = [body[start : start + _PART] for start in range(0, len(body), _PART)]
        records = [(f"{self._run}/{slot}/{index}", part, [("version", number)]) for index, part in enumerate(parts)]
        manifest = {
            "version": [version.epoch, version.number],
            "epoch": self.epoch,
            "slot": slot,
            "parts": len(parts),
            "checksum": zlib.crc32(body),
            "credits": paid,
        }
        return [*records, (self._run, json.dumps(manifest).encode(), [])]

    def _commit(self, records: Sequence[tuple[str, bytes, list[tuple[str, bytes]]]]) -> None:
        """Until it is done, however long the broker is away."""
        while True:
            try:
                self._producer.begin_transaction()
                for key, value, headers in records:
                    self._produce(key, value, headers)
                self._producer.commit_transaction(PATIENCE)
                return
            except KafkaException as error:
                self._recover(error)
                if self._closing and not error.args[0].retriable():
                    raise Unavailable(f"the last words to {self._topic} were lost: {words(error)}") from error

    def _produce(self, key: str, value: bytes, headers: list[tuple[str, bytes]]) -> None:
        while True:
            try:
                return self._producer.produce(self._topic, value, key, headers=headers)
            except BufferError:
                self._producer.poll(0.05)

    def _recover(self, error: KafkaException) -> None:
        """After this the transaction can be tried again; Fenced when it must not be."""
        trouble: KafkaError = error.args[0]
        if trouble.code() not in _FENCED and not trouble.fatal():
            try:
                self._producer.abort_transaction(PATIENCE)
                return
            except KafkaException as worse:
                if not (worse.args[0].fatal() or worse.args[0].code() in _FENCED):
                    return  # still away: begin_transaction says so again
        self._reopen()

    def _reopen(self) -> None:
        """The broker gave us up for long silence, or another learner is at work: its record tells which."""
        ends = time.monotonic() + _ITS_RECORD
        while time.monotonic() < ends:
            if self._last_epoch() > self.epoch:
                raise Fenced(f"another learner has taken over {self._run}, so this one must end")
        self._producer = self._open()

    # --- beginning ---------------------------------------------------------------------------------------------------

    def _open(self) -> Producer:
        producer = self._cluster.producer(
            **{
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
                if not error.args[0].retriable():
                    raise Unavailable(f"{self._topic} cannot be written: {words(error)}") from error

    def _say_so(self) -> None:
        about = {"epoch": self.epoch, "started_at": time.time()}
        self._commit([(f"{self._run}/learner", json.dumps(about).encode(), [])])

    def _last_epoch(self) -> int:
        return max((epoch for epoch in map(_epoch, self._tail()) if epoch is not None), default=-1)

    def _last(self) -> Version:
        manifests = [json.loads(each.value()) for each in self._tail() if each.key() == self._run.encode()]
        return max((Version(*each["version"]) for each in manifests), default=NONE)

    def _tail(self) -> list[Message]:
        return tail(self._cluster, self._topic, lambda records: any(_epoch(each) is not None for each in records))

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


def _epoch(message: Message) -> int | None:
    """The learner's epoch, where a record tells it."""
    if message.value() is None or not message.value().startswith(b'{"'):
        return None
    try:
        epoch = json.loads(message.value()).get("epoch")
    except ValueError:
        return None
    return epoch if isinstance(epoch, int) else None
