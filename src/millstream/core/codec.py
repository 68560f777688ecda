"""Bytes: rollouts as a small header plus raw little-endian arrays, weights as safetensors. Never pickle.

A message is the same everywhere. In shared memory its arrays stay where the actor wrote them and only
the header is added; on a wire they follow the header without gaps.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from millstream.core.data import Params, Policy, Rollout, Stamp, Version
from millstream.core.errors import CodecError
from millstream.core.spec import EnvSpec

MAGIC = b"MILL"
SCHEMA = 1
_PREFIX = struct.Struct("<4sHHII")  # magic, schema, flags, header length, checksum of all that follows
_CHECKED = 1
_ALIGN = 64
HEADER_ROOM = 8192
"""Bytes kept free for the header at the start of a slab."""
_DTYPES = {
    "<f4", "<f8", "<f2", "|u1", "|i1", "|b1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8",
}  # fmt: skip
_FIELDS = ("final_at", "actions", "rewards", "terminated", "truncated", "first", "valid")
_GROUPS = ("observations", "finals", "carry", "extras")
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, struct.error)
"""What reading bytes that someone else wrote may raise."""


@dataclass(frozen=True)
class Layout:
    """Where each array of a rollout stands in a slab.

    Finals have room for an ending at every step; pages that are never touched cost nothing.
    """

    arrays: Mapping[str, tuple[str, tuple[int, ...], int]]  # path -> dtype, shape, offset
    size: int

    @classmethod
    def of(
        cls,
        spec: EnvSpec,
        steps: int,
        slots: int,
        carry: Mapping[str, Any],
        extras: Mapping[str, Any],
    ) -> Layout:
        """The layout for T steps of B slots; `carry` and `extras` are examples of one step."""
        lead = (steps, slots)
        wanted: dict[str, tuple[str, tuple[int, ...]]] = {}
        for name, space in spec.observations.items():
            wanted[f"observations/{name}"] = (_dtype(space.dtype), (steps + 1, slots, *space.shape))
        for name, array in carry.items():
            wanted[f"carry/{name}"] = (_dtype(array.dtype), tuple(array.shape))
        for name, array in extras.items():
            wanted[f"extras/{name}"] = (_dtype(array.dtype), (*lead, *array.shape[1:]))
        if spec.masked:
            wanted["extras/mask"] = ("|b1", (steps + 1, slots, spec.mask_width))
        action_dtype = "float32" if spec.action.dtype.startswith("float") else spec.action.dtype
        wanted["actions"] = (_dtype(action_dtype), (*lead, *spec.action.shape))
        wanted["rewards"] = ("<f4", lead)
        for name in ("terminated", "truncated", "valid"):
            wanted[name] = ("|b1", lead)
        wanted["first"] = ("|b1", (steps + 1, slots))
        wanted["final_at"] = ("<i8", (steps * slots, 2))
        for name, space in spec.observations.items():
            wanted[f"finals/{name}"] = (_dtype(space.dtype), (steps * slots, *space.shape))
        placed, offset = {}, HEADER_ROOM
        for path, (dtype, shape) in wanted.items():
            placed[path] = (dtype, shape, offset)
            offset = _aligned(offset + np.dtype(dtype).itemsize * math.prod(shape))
        return cls(placed, offset)

    def views(self, buffer: memoryview) -> dict[str, np.ndarray]:
        """Arrays by path, living in the buffer."""
        return {path: _view(buffer, dtype, shape, offset) for path, (dtype, shape, offset) in self.arrays.items()}


def rollout_of(arrays: Mapping[str, np.ndarray], steps: int, finals: int, stamp: Stamp) -> Rollout:
    """A rollout over a layout's arrays, of which the first `steps` steps and `finals` endings were filled."""
    groups: dict[str, dict[str, np.ndarray]] = {name: {} for name in _GROUPS}
    fields: dict[str, Any] = {}
    for path, array in arrays.items():
        group, _, name = path.partition("/")
        if group == "carry":
            groups[group][name] = array
        elif group == "finals":
            groups[group][name] = array[:finals]
        elif group == "observations" or path == "extras/mask":
            groups[group][name] = array[: steps + 1]
        elif name:
            groups[group][name] = array[:steps]
        elif path == "final_at":
            fields[path] = array[:finals]
        else:
            fields[path] = array[: steps + 1] if path == "first" else array[:steps]
    return Rollout(**groups, **fields, stamp=stamp)


def paths(rollout: Rollout) -> dict[str, np.ndarray]:
    """The arrays of a rollout by path."""
    flat = {name: getattr(rollout, name) for name in _FIELDS}
    for group in _GROUPS:
        flat.update({f"{group}/{name}": array for name, array in getattr(rollout, group).items()})
    return flat


def encode(rollout: Rollout) -> bytearray:
    """A rollout as one message, checked by a checksum."""
    arrays = {path: _little(array) for path, array in paths(rollout).items()}
    places, offset = {}, 0
    for path, array in arrays.items():
        places[path], offset = offset, _aligned(offset + array.nbytes)
    header = _header(rollout.stamp, arrays, places)
    start = _aligned(_PREFIX.size + len(header))
    message = bytearray(start + offset)
    message[_PREFIX.size : _PREFIX.size + len(header)] = header
    for path, array in arrays.items():
        place = start + places[path]
        message[place : place + array.nbytes] = array.reshape(-1).view(np.uint8).data if array.size else b""
    checksum = zlib.crc32(memoryview(message)[_PREFIX.size :])
    _PREFIX.pack_into(message, 0, MAGIC, SCHEMA, _CHECKED, len(header), checksum)
    return message


def seal(buffer: memoryview, rollout: Rollout) -> None:
    """Make a slab a message: add the header. Arrays that live in the slab stay; others are copied behind them."""
    base = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]
    arrays, places, end = paths(rollout), {}, HEADER_ROOM
    outside = []
    for path, array in arrays.items():
        place = array.__array_interface__["data"][0] - base
        here = HEADER_ROOM <= place <= len(buffer) - array.nbytes
        if here and array.flags.c_contiguous and array.dtype.str == _dtype(array.dtype):
            places[path], end = place, max(end, place + array.nbytes)
        else:
            outside.append(path)
    for path in outside:
        array, place = arrays[path], _aligned(end)
        end = place + array.nbytes
        if end > len(buffer):
            raise CodecError(f"a rollout needs {end} bytes and its slab has {len(buffer)}")
        _view(buffer, _dtype(array.dtype), array.shape, place)[...] = array
        places[path] = place
    origin = _aligned(_PREFIX.size)
    header = _header(rollout.stamp, arrays, {path: place - HEADER_ROOM for path, place in places.items()})
    if origin + len(header) > HEADER_ROOM:
        raise CodecError(f"a rollout's header has {len(header)} bytes; there is room for {HEADER_ROOM - origin}")
    padding = HEADER_ROOM - _PREFIX.size - len(header)
    buffer[_PREFIX.size : HEADER_ROOM] = header + b" " * padding
    _PREFIX.pack_into(buffer, 0, MAGIC, SCHEMA, 0, HEADER_ROOM - _PREFIX.size, 0)


def decode(message: memoryview | bytes | bytearray) -> Rollout:
    """A rollout whose arrays are views into the message."""
    message = memoryview(message)
    if len(message) < _PREFIX.size:
        raise CodecError(f"a message of {len(message)} bytes is shorter than its prefix", reason="truncated")
    magic, schema, flags, length, checksum = _PREFIX.unpack_from(message)
    if magic != MAGIC or schema != SCHEMA or flags & ~_CHECKED:
        text = f"not a message of schema {SCHEMA}: it starts with {bytes(message[:6])!r}"
        raise CodecError(text, reason="schema" if magic == MAGIC else "unreadable")
    if flags & _CHECKED and zlib.crc32(message[_PREFIX.size :]) != checksum:
        raise CodecError("a message's checksum does not match: it was damaged on its way", reason="checksum")
    start = _aligned(_PREFIX.size + length)
    try:
        header = json.loads(bytes(message[_PREFIX.size : _PREFIX.size + length]))
        arrays = {
            path: _view(message, dtype, tuple(shape), start + place) for path, dtype, shape, place in header["arrays"]
        }
        rollout = _assemble(arrays, _stamp(header["stamp"]))
    except _DAMAGE as error:
        raise CodecError(f"a message's header is damaged: {error}", reason="header") from error
    _check_shapes(rollout)
    return rollout


def _assemble(arrays: Mapping[str, np.ndarray], stamp: Stamp) -> Rollout:
    groups: dict[str, dict[str, np.ndarray]] = {name: {} for name in _GROUPS}
    fields: dict[str, Any] = {}
    for path, array in arrays.items():
        group, slash, name = path.partition("/")
        if slash:
            groups[group][name] = array
        else:
            fields[path] = array
    return Rollout(**groups, **fields, stamp=stamp)


def _stamp(value: Mapping[str, Any]) -> Stamp:
    """A stamp whose every field has its type; a stranger could have written it."""
    stamp = Stamp(**{**value, "policy": _version(value["policy"])})
    numbers = (stamp.actor, stamp.epoch, stamp.sequence)
    if not isinstance(stamp.experiment, str) or not all(type(number) is int for number in numbers):
        raise ValueError(f"a stamp of {value!r}")
    if type(stamp.made_at) not in (int, float):
        raise ValueError(f"a stamp made at {stamp.made_at!r}")
    return stamp


def _version(value: Any) -> Version:
    epoch, number = value
    if type(epoch) is not int or type(number) is not int:
        raise ValueError(f"a version of {value!r}")
    return Version(epoch, number)


def _check_shapes(rollout: Rollout) -> None:
    """Whoever reads a rollout may count on T and B."""
    if rollout.rewards.ndim != 2:
        raise CodecError(f"rewards of a rollout are [T, B], got shape {rollout.rewards.shape}", reason="shape")
    steps, slots = rollout.rewards.shape
    endings = rollout.final_at.shape[:1]
    wanted: dict[str, tuple[int, ...]] = dict.fromkeys(("terminated", "truncated", "valid"), (steps, slots))
    wanted |= {"first": (steps + 1, slots), "final_at": (*endings, 2)}
    wrong = [name for name, shape in wanted.items() if getattr(rollout, name).shape != shape]
    leads: list[tuple[str, Mapping[str, Any], tuple[int, ...]]] = [
        ("actions", {"": rollout.actions}, (steps, slots)),
        ("observations", rollout.observations, (steps + 1, slots)),
        ("finals", rollout.finals, endings),
        ("carry", rollout.carry, (slots,)),
    ]
    wrong += [group for group, named, lead in leads for array in named.values() if array.shape[: len(lead)] != lead]
    if wrong:
        raise CodecError(
            f"a rollout of {steps} steps and {slots} slots has {wrong[0]} of another shape", reason="shape"
        )


def _header(stamp: Stamp, arrays: Mapping[str, np.ndarray], places: Mapping[str, int]) -> bytes:
    about = {**asdict(stamp), "policy": [stamp.policy.epoch, stamp.policy.number]}
    table = [[path, _dtype(array.dtype), list(array.shape), places[path]] for path, array in arrays.items()]
    return json.dumps({"stamp": about, "arrays": table}, separators=(",", ":")).encode()


def _view(buffer: memoryview, dtype: str, shape: tuple[int, ...], offset: int) -> np.ndarray:
    if dtype not in _DTYPES:
        raise CodecError(f"arrays of type {dtype!r} do not travel")
    count = math.prod(shape)
    if min(shape, default=0) < 0 or offset < 0 or offset + count * np.dtype(dtype).itemsize > len(buffer):
        raise CodecError(f"an array of shape {shape} at {offset} does not fit into {len(buffer)} bytes")
    return np.frombuffer(buffer, dtype, count, offset).reshape(shape) if count else np.empty(shape, dtype)


def _dtype(dtype: Any) -> str:
    name = np.dtype(dtype).newbyteorder("<").str
    if name not in _DTYPES:
        raise CodecError(f"arrays of type {np.dtype(dtype)} do not travel")
    return name


def _little(array: Any) -> np.ndarray:
    """The array as its bytes travel: little-endian and without gaps."""
    array = np.asarray(array)
    return np.asarray(array, dtype=_dtype(array.dtype), order="C")


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN


# --- weights ---------------------------------------------------------------------------------------------------------

_TENSORS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
            "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1"}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _TENSORS.items()}


def encode_tensors(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> bytes:
    """Arrays in the safetensors format."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    bodies: list[memoryview] = []
    offset = 0
    for name, tensor in tensors.items():
        array = _little(tensor)
        header[name] = {
            "dtype": _NAMES[_dtype(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        bodies.append(array.reshape(-1).view(np.uint8).data)  # copied once, by the join
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([struct.pack("<Q", len(text)), text, *bodies])


def decode_tensors(data: bytes | memoryview) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays and the metadata of a safetensors file; the arrays are copies, theirs to change."""
    data = memoryview(data)
    try:
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(bytes(data[8 : 8 + length]))
        metadata = dict(header.pop("__metadata__", {}))
        if not all(isinstance(text, str) for text in metadata.values()):
            raise CodecError("the metadata of a safetensors file is text")
        body, views, filled = data[8 + length :], {}, 0
        for name, entry in header.items():
            dtype, (start, end) = _TENSORS[entry["dtype"]], entry["data_offsets"]
            view = views[name] = _view(body, dtype, tuple(entry["shape"]), start)
            if view.nbytes != end - start:
                raise CodecError(f"the tensor {name!r} claims {end - start} bytes and has {view.nbytes}")
            filled += view.nbytes
        if filled != len(body):  # before any copy: tensors that share bytes could ask for any amount of memory
            raise CodecError(f"its tensors have {filled} bytes, the file holds {len(body)}")
        return {name: view.copy() for name, view in views.items()}, metadata
    except _DAMAGE as error:
        raise CodecError(f"not a safetensors file: {error}") from error


def encode_policy(policy: Policy, about: Mapping[str, Any] | None = None) -> bytes:
    """A policy as safetensors, its version and hyper-parameters in the metadata; `about` says what plays it."""
    version = {
        "version": [policy.version.epoch, policy.version.number],
        "steps": policy.steps,
        "hyper": dict(policy.params.hyper),
    }
    metadata = {"millstream": json.dumps(version)}
    if about is not None:
        metadata["about"] = json.dumps(about)
    return encode_tensors(policy.params.tensors, metadata)


def decode_policy(data: bytes | memoryview) -> Policy:
    """The inverse of `encode_policy`."""
    tensors, metadata = decode_tensors(data)
    try:
        about = json.loads(metadata["millstream"])
        return Policy(_version(about["version"]), Params(tensors, dict(about["hyper"])), int(about["steps"]))
    except _DAMAGE as error:
        raise CodecError(f"these tensors are not a policy: {error}") from error
