"""A parameter server for worker processes of this machine: pushes in slabs, the latest weights in shared memory.

Only receipts go through a socket, which also tells each side that the other has ended. A worker that is killed leaves
a whole push or none, and its memory goes back with its seat.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from millstream.core import errors, pushes
from millstream.core.clock import SystemClock
from millstream.core.data import NONE, Policy, Receipt, Version
from millstream.core.errors import CodecError, MillError, RunError, TimedOut, Unavailable
from millstream.core.ports import Clock, Parameters
from millstream.core.topics import Report, Topic
from millstream.wires.channel import Channel
from millstream.wires.policies import SharedPolicies
from millstream.wires.ring import Ring

RECEIPTS: Topic[Report] = Topic("receipts")
_LENGTHS = struct.Struct("<QQ")  # of what a push says of itself, and of its numbers
_ROOM = 64 << 10  # for names, shapes and what a push says of itself
_POLL = 0.002
"""Seconds between two looks at the latest version."""


@dataclass
class _Seat:
    """What the parent holds of one worker."""

    ring: Ring
    channel: Channel

    def close(self) -> None:
        self.channel.close()
        self.ring.close()


class SharedParameters:
    """The parent's side, a role: it takes pushes, applies them, shows the latest weights, and answers.

    The server has its parameters already: how large they are decides how large the shared memory is.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._policies = SharedPolicies.create()
        self._policies.publish(parameters.get())
        self._seats: list[_Seat] = []

    @property
    def workers(self) -> int:
        """How many seats are taken."""
        return len(self._seats)

    @contextlib.contextmanager
    def seat(self) -> Iterator[tuple[int, int, int]]:
        """The descriptors for one worker: start it inside the block, with `pass_fds`; what is only its own is closed
        behind it, so that its end can be seen."""
        ours, theirs = socket.socketpair()
        with theirs:
            ring = Ring.create("pushes", window=1)
            ring.claim(self._policies.capacity + _ROOM)
            self._seats.append(_Seat(ring, Channel(ours)))
            yield ring.descriptor, theirs.fileno(), self._policies.descriptor

    def step(self) -> int:
        """Take one push of each worker that has one; those who died give their seats back."""
        gone = [seat for seat in self._seats if _ended(seat.channel)]  # before its last push is looked for
        answers = [(seat, self._answer(seat.ring)) for seat in self._seats if seat.ring.waiting]
        if self._parameters.version > self._policies.version:  # first: who is told of a version can read it
            self._policies.publish(self._parameters.get())
        for seat, answer in answers:
            seat.channel.send(RECEIPTS, answer)
        for seat in gone:
            self._seats.remove(seat)
            seat.close()
        return len(answers) + len(gone)

    def close(self) -> None:
        """Let go of all memory; workers see it."""
        for seat in self._seats:
            seat.close()
        self._seats = []
        self._policies.close()

    def _answer(self, ring: Ring) -> Report:
        position = ring.released
        try:
            receipt = self._push(ring.slab(position))
        except MillError as error:
            return {"push": position, "error": type(error).__name__, "text": str(error)}
        finally:
            ring.free(position)
        version = [receipt.version.epoch, receipt.version.number]
        return {"push": position, "accepted": receipt.accepted, "version": version, "reason": receipt.reason}

    def _push(self, slab: memoryview) -> Receipt:
        try:
            length, size = _LENGTHS.unpack_from(slab)
            start = _LENGTHS.size + length
            about = json.loads(bytes(slab[_LENGTHS.size : start]))
            version: Any = None if about["version"] is None else Version(*about["version"])
            said = (
                about["worker"],
                version,
                pushes.decode(slab[start : start + size]),
                about["samples"],
                about["weight"],
            )
            push = {"gradients": self._parameters.push_gradients, "delta": self._parameters.push_delta}[about["kind"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CodecError(f"a worker wrote something that is no push: {error}") from error
        return push(*said)


class PushedParameters:
    """A worker's side, over the descriptors of its seat; for one thread.

    `timeout` is how many seconds an answer may take.
    """

    def __init__(
        self, ring: int, channel: int, policies: int, timeout: float = 60.0, clock: Clock | None = None
    ) -> None:
        for descriptor in (ring, channel, policies):
            os.set_inheritable(descriptor, False)  # a process that we start must not look like us after our death
        self._ring, self._channel, self._policies = Ring(ring, 1), Channel.adopt(channel), SharedPolicies(policies)
        self._timeout, self._clock = timeout, clock or SystemClock()

    @property
    def version(self) -> Version:
        """The latest version."""
        return self._policies.version

    def get(self) -> Policy:
        """The latest policy; the arrays are yours."""
        policy = self.latest()
        if policy is None:
            raise RunError("the shared memory holds no parameters; the parent makes a SharedParameters first")
        return policy

    def latest(self, newer_than: Version = NONE) -> Policy | None:
        """The latest policy, or None when there is nothing newer than that."""
        return self._policies.latest(newer_than)

    def wait(self, newer_than: Version, timeout: float) -> Policy | None:
        """Like `latest`, but for at most `timeout` seconds it waits for something newer."""
        end = self._clock.monotonic() + timeout
        while self.version <= newer_than:
            left = end - self._clock.monotonic()
            if left <= 0:
                break
            self._heard(min(left, _POLL))
        return self.latest(newer_than)

    def push_gradients(
        self, worker: str | int, version: Version, gradients: Any, samples: float = 1, weight: float | None = None
    ) -> Receipt:
        """Descend along gradients that were computed on `version` from so many samples."""
        return self._push("gradients", worker, version, gradients, samples, weight)

    def push_delta(
        self, client: str | int, version: Version, delta: Any, samples: float = 1, weight: float | None = None
    ) -> Receipt:
        """Go along what a client learnt on its own: its weights less those of `version`."""
        return self._push("delta", client, version, delta, samples, weight)

    def close(self) -> None:
        """Give the seat back."""
        self._channel.close()
        self._ring.close()
        self._policies.close()

    def _push(self, kind: str, worker: Any, version: Any, pushed: Any, samples: Any, weight: Any) -> Receipt:
        about = json.dumps({
            "kind": kind,
            "worker": pushes.worker_text(worker),
            "version": pushes.version_pair(version),
            "samples": pushes.amount_text(samples),
            "weight": None if weight is None else pushes.amount_text(weight),
        }).encode()  # fmt: skip
        end = self._clock.monotonic() + self._timeout
        slab = self._claimed(end)
        start = _LENGTHS.size + len(about)
        data = pushes.encode(pushed, len(slab) - start)
        _LENGTHS.pack_into(slab, 0, len(about), len(data))
        slab[_LENGTHS.size : start], slab[start : start + len(data)] = about, data
        position = self._ring.published
        self._ring.commit(0, position)
        return self._receipt(position, end)

    def _claimed(self, end: float) -> memoryview:
        """The slab; it is taken only while a push that we no longer waited for has not been answered."""
        while (slab := self._ring.claim(0)) is None:
            self._heard(self._left(end))
        return slab

    def _receipt(self, position: int, end: float) -> Receipt:
        while True:
            for told in self._heard(self._left(end)):
                if told["push"] != position:  # of one that we no longer waited for
                    continue
                if "error" in told:
                    raise errors.named(told["error"], told["text"]) or RunError(f"{told['error']}: {told['text']}")
                return Receipt(told["accepted"], Version(*told["version"]), told["reason"])

    def _heard(self, seconds: float) -> list[Any]:
        """What the parent said, at most so many seconds later; Unavailable when it has ended."""
        waiting = select.poll()  # not select: it knows no descriptor above 1023
        waiting.register(self._channel, select.POLLIN)
        waiting.poll(seconds * 1000)
        told = [body for _, body in self._channel.receive()]
        if self._channel.closed and not told:
            raise Unavailable("the process that holds the parameters has ended, or gave this seat up; start over")
        return told

    def _left(self, end: float) -> float:
        left = end - self._clock.monotonic()
        if left <= 0:
            raise TimedOut(
                f"the process that holds the parameters did not answer in {self._timeout:g} s; "
                "does it step its SharedParameters? the push may or may not have been applied"
            )
        return left


def _ended(channel: Channel) -> bool:
    channel.receive()  # a worker says nothing; its end shows here
    return channel.closed
