"""The parameter server for other processes and machines: each call is one call of the server."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from millstream.core import pushes
from millstream.core.codec import decode_policy, encode_policy
from millstream.core.data import NONE, Policy, Receipt, Version
from millstream.core.errors import CodecError
from millstream.core.parts import Joined, cut
from millstream.core.ports import Parameters
from millstream.protos import parameters_pb2 as messages
from millstream.protos import parameters_pb2_grpc as stubs
from millstream.services.once import Once
from millstream.services.serving import Offer

NAME = messages.DESCRIPTOR.services_by_name["Parameters"].full_name
LARGEST = 1 << 30
"""Bytes of the largest push or policy."""
LONGEST_WAIT = 2.0
"""Seconds that one call waits at most: whoever wants more asks again, and so no call holds up the end."""


def offer(parameters: Parameters, largest: int = LARGEST) -> Offer:
    """The service over these parameters."""
    service = Service(parameters, largest)
    return Offer(NAME, lambda server: stubs.add_ParametersServicer_to_server(service, server))


class Service(stubs.ParametersServicer):
    """Decodes, asks the server, encodes."""

    def __init__(self, parameters: Parameters, largest: int = LARGEST) -> None:
        self._parameters, self._largest = parameters, largest
        self._once = Once()
        self._encoded: tuple[Policy | None, bytes] = None, b""

    def GetVersion(self, request: Any, context: Any) -> Any:
        """The latest version."""
        return _message(self._parameters.version)

    def GetParameters(self, request: Any, context: Any) -> Iterator[Any]:
        """The latest policy in parts; nothing when there is nothing newer."""
        newer_than = _version(request.newer_than) if request.HasField("newer_than") else NONE
        policy = self._parameters.wait(newer_than, min(max(0.0, request.wait_seconds), LONGEST_WAIT))
        if policy is None:
            return
        data = self._bytes(policy)
        yield messages.PolicyPart(size=len(data))
        for part, checksum in cut(data):
            yield messages.PolicyPart(part=messages.Part(data=part, checksum=checksum))

    def PublishParameters(self, requests: Iterator[Any], context: Any) -> Any:
        """Make a policy the latest."""
        header, data = self._received(requests)
        self._change(header.call, lambda: self._parameters.publish(decode_policy(data)))
        return messages.Done()

    def Push(self, requests: Iterator[Any], context: Any) -> Any:
        """Gradients or a delta."""
        header, data = self._received(requests)
        receipt = self._change(header.call, lambda: self._pushed(header, data))
        return messages.Receipt(accepted=receipt.accepted, version=_message(receipt.version), reason=receipt.reason)

    def BeginRound(self, request: Any, context: Any) -> Any:
        """Open a round."""
        members = self._change(request.call, lambda: self._parameters.begin_round(request.clients))
        return messages.RoundMembers(clients=sorted(members))

    def EndRound(self, request: Any, context: Any) -> Any:
        """Apply what the open round has."""
        return _message(self._change(request.call, self._parameters.end_round))

    def GetStatistics(self, request: Any, context: Any) -> Any:
        """What was counted."""
        told = self._parameters.statistics()
        fields = {field.name: getattr(told, field.name) for field in dataclasses.fields(told)}
        return messages.Statistics(**{**fields, "version": _message(told.version), "refused": dict(told.refused)})

    def _change(self, call: Any, work: Any) -> Any:
        return self._once.do(call.caller, call.sequence, work)

    def _pushed(self, header: Any, data: memoryview) -> Receipt:
        gradients = header.kind == messages.PushHeader.GRADIENTS
        push = self._parameters.push_gradients if gradients else self._parameters.push_delta
        version: Any = _version(header.version) if header.HasField("version") else None
        samples, weight = _amount(header, "samples", 1), _amount(header, "weight", None)
        return push(header.worker, version, pushes.decode(data), samples, weight)

    def _received(self, requests: Iterator[Any]) -> tuple[Any, memoryview]:
        """The header and all that follows it."""
        first = next(requests, None)
        if first is None or not first.HasField("header"):
            raise CodecError("a stream of parts begins with its header")
        joined = Joined(first.header.size, self._largest)
        for message in requests:
            joined.add(message.part.data, message.part.checksum)
        return first.header, joined.whole()

    def _bytes(self, policy: Policy) -> bytes:
        """Encoded once for all who fetch it."""
        held, data = self._encoded
        if held is not policy:
            data = encode_policy(policy)
            self._encoded = policy, data
        return data


def _amount(header: Any, name: str, default: int | None) -> Any:
    if not header.HasField(name):
        return default
    amount = getattr(header, name)
    return getattr(amount, amount.WhichOneof("value") or "text")


def _version(message: Any) -> Version:
    return Version(message.epoch, message.number)


def _message(version: Version) -> Any:
    return messages.Version(epoch=version.epoch, number=version.number)
