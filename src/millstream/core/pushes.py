"""What workers push, as bytes: safetensors that say in which form the worker had them.

What is not made of real numbers travels as a text that tells what it was: whoever holds the parameters refuses and
counts it, and the worker gets the same answer as in one process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from millstream.core.codec import decode_tensors, encode_tensors
from millstream.core.data import Version
from millstream.core.errors import CodecError

_FORM = "push"
_FLAT, _NAMED, _NEITHER = "flat", "named", "neither"
_TEXT, _NAME = 200, 1000
_WIDEST = 1 << 62


def encode(pushed: Any, limit: int) -> bytes:
    """Gradients or a delta, as float32: that is what they are added up in anyway. At most `limit` bytes."""
    try:
        return _encoded(pushed, limit)
    except Exception as error:  # a stranger's object may raise anything
        return encode_tensors({}, {_FORM: _NEITHER, "text": f"{error!s:.{_TEXT}}"})


def decode(data: bytes | memoryview) -> Any:
    """What was pushed: an array, arrays by name, or a text, which nobody takes for either."""
    tensors, metadata = decode_tensors(data)
    form = metadata.get(_FORM, _NAMED)
    if form == _NEITHER:
        return metadata.get("text", "")
    if form == _FLAT and "" in tensors:
        return tensors[""]
    return tensors


def worker_text(worker: Any) -> str:
    """A worker's name; empty when it is none, which is refused."""
    if isinstance(worker, bool) or not isinstance(worker, str | int) or len(str(worker)) > _NAME:
        return ""
    return str(worker).encode(errors="replace").decode()


def version_pair(version: Any) -> tuple[int, int] | None:
    """Epoch and number; None when it is no version, which is refused."""
    pair = (version.epoch, version.number) if isinstance(version, Version) else ()
    if not pair or not all(type(part) is int and abs(part) < _WIDEST for part in pair):
        return None
    return pair


def amount_text(value: Any) -> float | str:
    """A number; the text of what is none, which is refused."""
    try:
        number = None if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    return f"{value!r:.{_TEXT}}" if number is None else number


def _encoded(pushed: Any, limit: int) -> bytes:
    form = _NAMED if isinstance(pushed, Mapping) else _FLAT
    arrays = {str(name): np.asarray(value) for name, value in (pushed if form is _NAMED else {"": pushed}).items()}
    wrong = [str(array.dtype) for array in arrays.values() if array.dtype.kind not in "fiu"]
    size = np.dtype(np.float32).itemsize * sum(array.size for array in arrays.values())
    if wrong:
        raise CodecError(f"arrays of {wrong[0]}")
    if size > limit:  # before anything is copied
        raise CodecError(f"{size:,} bytes, and at most {limit:,} are taken")
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large for float32 is refused as not finite
        singles = {name: array.astype(np.float32, copy=False) for name, array in arrays.items()}
    data = encode_tensors(singles, {_FORM: form})
    if len(data) > limit:
        raise CodecError(f"{len(data):,} bytes with its names, and at most {limit:,} are taken")
    return data
