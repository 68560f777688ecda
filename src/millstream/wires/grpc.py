"""The clients of our gRPC services: the same methods as the thing itself, elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from millstream.core.codec import decode_policy, encode_policy
from millstream.core.data import NONE, Policy, Receipt, Statistics, Version
from millstream.core.errors import RunError, TooLarge
from millstream.core.parts import Joined, cut
from millstream.core.ports import Clock
from millstream.core.pushes import amount_text, encode, version_pair, worker_text
from millstream.protos import parameters_pb2 as messages
from millstream.protos import parameters_pb2_grpc as stubs
from millstream.wires.line import Line

LARGEST = 1 << 30
"""Bytes of the largest push or policy."""
_ONE_WAIT = 20.0
_PAUSE = 0.05


class RemoteParameters:
    """A `ParameterServer` in another process, or on another machine.

    address: host:port. token: what the service was given by `--token-file`.
    tls: the file of the certificate (PEM) that vouches for the service; without it nothing is encrypted.
    timeout: seconds that a call may take, its bytes included. patience: seconds for which a service that is away,
    because it restarts, is called again; a push is applied once however often it was sent.
    """

    def __init__(
        self,
        address: str,
        token: str | None = None,
        tls: str | Path | None = None,
        timeout: float = 60.0,
        patience: float = 10.0,
        clock: Clock | None = None,
    ) -> None:
        self._line = Line(address, token, tls, timeout, patience, clock)
        self._stub = stubs.ParametersStub(self._line.channel)

    @property
    def version(self) -> Version:
        """The latest version; NONE while there are no parameters."""
        return _version(self._ask(self._stub.GetVersion, messages.GetVersionRequest()))

    def get(self) -> Policy:
        """The latest policy; the arrays are yours."""
        policy = self.latest()
        if policy is None:
            raise RunError(f"the server at {self._line.address} has no parameters yet; publish a policy first")
        return policy

    def latest(self, newer_than: Version = NONE) -> Policy | None:
        """The latest policy, or None when there is nothing newer than that."""
        return self._fetch(newer_than, 0.0)

    def wait(self, newer_than: Version, timeout: float) -> Policy | None:
        """Like `latest`, but for at most `timeout` seconds it waits for something newer."""
        clock = self._line.clock
        end = clock.monotonic() + timeout
        while True:
            asked = clock.monotonic()
            policy = self._fetch(newer_than, min(max(end - asked, 0.0), _ONE_WAIT))
            now = clock.monotonic()
            if policy is not None or now >= end:
                return policy
            if now - asked < _PAUSE:  # it would not wait: it was closed
                clock.rest(min(_PAUSE, end - now))

    def statistics(self) -> Statistics:
        """What was counted since the server was made."""
        told = self._ask(self._stub.GetStatistics, messages.GetStatisticsRequest())
        fields = {field.name: getattr(told, field.name) for field in dataclasses.fields(Statistics)}
        for name in ("epsilon", "delta"):
            fields[name] = fields[name] if told.HasField(name) else None
        return Statistics(**{**fields, "version": _version(told.version), "refused": dict(told.refused)})

    def publish(self, policy: Policy) -> None:
        """Make this the latest, whole; Fenced when it is not newer."""
        data = encode_policy(policy)
        if len(data) > LARGEST:
            raise TooLarge(f"a policy of {len(data):,} bytes is more than travels at once, which is {LARGEST:,}")
        header = messages.PublishHeader(call=self._call(), size=len(data))
        self._send(self._stub.PublishParameters, messages.PublishPart, header, data)

    def push_gradients(
        self, worker: str | int, version: Version, gradients: Any, samples: float = 1, weight: float | None = None
    ) -> Receipt:
        """Descend along gradients that were computed on `version` from so many samples."""
        return self._push(messages.PushHeader.GRADIENTS, worker, version, gradients, samples, weight)

    def push_delta(
        self, client: str | int, version: Version, delta: Any, samples: float = 1, weight: float | None = None
    ) -> Receipt:
        """Go along what a client learnt on its own: its weights less those of `version`."""
        return self._push(messages.PushHeader.DELTA, client, version, delta, samples, weight)

    def begin_round(self, clients: Iterable[str | int]) -> frozenset[str]:
        """Open a round for these clients, and say who takes part."""
        request = messages.BeginRoundRequest(call=self._call(), clients=[str(client) for client in clients])
        return frozenset(self._ask(self._stub.BeginRound, request).clients)

    def end_round(self) -> Version:
        """Apply what the open round has, and say which version is the latest."""
        return _version(self._ask(self._stub.EndRound, messages.EndRoundRequest(call=self._call())))

    def close(self) -> None:
        """Let go of the connection. The server goes on, for others."""
        self._line.close()

    def _push(self, kind: Any, worker: Any, version: Any, pushed: Any, samples: Any, weight: Any) -> Receipt:
        data = encode(pushed, LARGEST)
        header = messages.PushHeader(
            call=self._call(),
            kind=kind,
            worker=worker_text(worker),
            version=_message(version),
            samples=_amount(samples),
            weight=None if weight is None else _amount(weight),
            size=len(data),
        )
        told = self._send(self._stub.Push, messages.PushPart, header, data)
        return Receipt(told.accepted, _version(told.version), told.reason)

    def _fetch(self, newer_than: Version, seconds: float) -> Policy | None:
        request = messages.GetParametersRequest(newer_than=_message(newer_than), wait_seconds=seconds)
        data = self._line.ask(lambda **how: _received(self._stub.GetParameters(request, **how)), longer=seconds)
        return None if data is None else decode_policy(data)

    def _ask(self, method: Any, request: Any) -> Any:
        return self._line.ask(lambda **how: method(request, **how))

    def _send(self, method: Any, message: Any, header: Any, data: bytes) -> Any:
        """A header and its parts, from the start at each try."""
        return self._line.ask(lambda **how: method(_parts(message, header, data), **how))

    def _call(self) -> Any:
        caller, sequence = self._line.call()
        return messages.Call(caller=caller, sequence=sequence)


def _parts(message: Any, header: Any, data: bytes) -> Iterator[Any]:
    yield message(header=header)
    for part, checksum in cut(data):
        yield message(part=messages.Part(data=part, checksum=checksum))


def _received(stream: Iterator[Any]) -> memoryview | None:
    """All parts of a policy; None when the stream was empty."""
    first = next(stream, None)
    if first is None:
        return None
    joined = Joined(first.size, LARGEST)
    for message in stream:
        joined.add(message.part.data, message.part.checksum)
    return joined.whole()


def _amount(value: Any) -> Any:
    told = amount_text(value)
    return messages.Amount(text=told) if isinstance(told, str) else messages.Amount(number=told)


def _message(version: Any) -> Any:
    pair = version_pair(version)
    return None if pair is None else messages.Version(epoch=pair[0], number=pair[1])


def _version(message: Any) -> Version:
    return Version(message.epoch, message.number)
