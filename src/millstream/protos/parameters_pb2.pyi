from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Version(_message.Message):
    __slots__ = ("epoch", "number")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    number: int
    def __init__(self, epoch: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("caller", "sequence")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    caller: str
    sequence: int
    def __init__(self, caller: _Optional[str] = ..., sequence: _Optional[int] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("data", "checksum")
    DATA_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    checksum: int
    def __init__(self, data: _Optional[bytes] = ..., checksum: _Optional[int] = ...) -> None: ...

class GetParametersRequest(_message.Message):
    __slots__ = ("newer_than", "wait_seconds")
    NEWER_THAN_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    newer_than: Version
    wait_seconds: float
    def __init__(self, newer_than: _Optional[_Union[Version, _Mapping]] = ..., wait_seconds: _Optional[float] = ...) -> None: ...

class GetVersionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PolicyPart(_message.Message):
    __slots__ = ("size", "part")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    size: int
    part: Part
    def __init__(self, size: _Optional[int] = ..., part: _Optional[_Union[Part, _Mapping]] = ...) -> None: ...

class PublishHeader(_message.Message):
    __slots__ = ("call", "size")
    CALL_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    call: Call
    size: int
    def __init__(self, call: _Optional[_Union[Call, _Mapping]] = ..., size: _Optional[int] = ...) -> None: ...

class PublishPart(_message.Message):
    __slots__ = ("header", "part")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    header: PublishHeader
    part: Part
    def __init__(self, header: _Optional[_Union[PublishHeader, _Mapping]] = ..., part: _Optional[_Union[Part, _Mapping]] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Amount(_message.Message):
    __slots__ = ("number", "text")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    number: float
    text: str
    def __init__(self, number: _Optional[float] = ..., text: _Optional[str] = ...) -> None: ...

class PushHeader(_message.Message):
    __slots__ = ("call", "kind", "worker", "version", "samples", "weight", "size")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        GRADIENTS: _ClassVar[PushHeader.Kind]
        DELTA: _ClassVar[PushHeader.Kind]
    GRADIENTS: PushHeader.Kind
    DELTA: PushHeader.Kind
    CALL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    call: Call
    kind: PushHeader.Kind
    worker: str
    version: Version
    samples: Amount
    weight: Amount
    size: int
    def __init__(self, call: _Optional[_Union[Call, _Mapping]] = ..., kind: _Optional[_Union[PushHeader.Kind, str]] = ..., worker: _Optional[str] = ..., version: _Optional[_Union[Version, _Mapping]] = ..., samples: _Optional[_Union[Amount, _Mapping]] = ..., weight: _Optional[_Union[Amount, _Mapping]] = ..., size: _Optional[int] = ...) -> None: ...

class PushPart(_message.Message):
    __slots__ = ("header", "part")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    header: PushHeader
    part: Part
    def __init__(self, header: _Optional[_Union[PushHeader, _Mapping]] = ..., part: _Optional[_Union[Part, _Mapping]] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("accepted", "version", "reason")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    version: Version
    reason: str
    def __init__(self, accepted: _Optional[bool] = ..., version: _Optional[_Union[Version, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class BeginRoundRequest(_message.Message):
    __slots__ = ("call", "clients")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    call: Call
    clients: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, call: _Optional[_Union[Call, _Mapping]] = ..., clients: _Optional[_Iterable[str]] = ...) -> None: ...

class RoundMembers(_message.Message):
    __slots__ = ("clients",)
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    clients: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, clients: _Optional[_Iterable[str]] = ...) -> None: ...

class EndRoundRequest(_message.Message):
    __slots__ = ("call",)
    CALL_FIELD_NUMBER: _ClassVar[int]
    call: Call
    def __init__(self, call: _Optional[_Union[Call, _Mapping]] = ...) -> None: ...

class GetStatisticsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Statistics(_message.Message):
    __slots__ = ("version", "steps", "accepted", "refused", "replaced", "dropped", "rounds", "waiting", "bytes", "lag", "lag_max", "epsilon", "delta")
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    LAG_MAX_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    version: Version
    steps: int
    accepted: int
    refused: _containers.ScalarMap[str, int]
    replaced: int
    dropped: int
    rounds: int
    waiting: int
    bytes: int
    lag: float
    lag_max: int
    epsilon: float
    delta: float
    def __init__(self, version: _Optional[_Union[Version, _Mapping]] = ..., steps: _Optional[int] = ..., accepted: _Optional[int] = ..., refused: _Optional[_Mapping[str, int]] = ..., replaced: _Optional[int] = ..., dropped: _Optional[int] = ..., rounds: _Optional[int] = ..., waiting: _Optional[int] = ..., bytes: _Optional[int] = ..., lag: _Optional[float] = ..., lag_max: _Optional[int] = ..., epsilon: _Optional[float] = ..., delta: _Optional[float] = ...) -> None: ...
