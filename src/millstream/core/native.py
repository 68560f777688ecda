"""What is written in C, called through ctypes: the interpreter's lock is free meanwhile.

Installation compiles it where there is a compiler, once for each kind of processor; rooms that have something in C do
without it where nothing was compiled.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, Structure, addressof, c_char, c_double, c_float, c_int, c_int64, c_long, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

LEVELS = ("libmill.so", "libmill-avx2.so", "libmill-avx512.so")
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "level": (c_int, []),
    "mlp_room": (c_long, [c_void_p, c_long]),
    "mlp_forward": (None, [c_void_p, c_long, *5 * [c_void_p]]),
    "mlp_backward": (None, [c_void_p, c_long, *6 * [c_void_p]]),
    "mlp_slopes": (None, [c_void_p, c_long, *6 * [c_void_p]]),
    "adam": (None, [c_long, *4 * [c_void_p], *4 * [c_float]]),
    "follow": (None, [c_long, *2 * [c_void_p], c_float]),
    "conv_room": (c_long, [c_void_p, c_long]),
    "conv_forward": (None, [c_void_p, c_long, c_void_p, c_float, *3 * [c_void_p]]),
    "conv_backward": (None, [c_void_p, c_long, c_void_p, c_float, *4 * [c_void_p]]),
    "tree_put": (None, [c_void_p, c_long, c_long, c_void_p, c_void_p]),
    "tree_fill": (None, [c_void_p, c_long, c_long, c_long, c_double]),
    "tree_find": (None, [c_void_p, c_long, c_long, *3 * [c_void_p]]),
    "rows_put": (c_int64, 2 * [c_void_p]),
    "rows_take": (c_long, 4 * [c_void_p]),
    "rows_locate": (None, [c_long, c_void_p, c_long, c_void_p, c_long, c_void_p]),
    "rows_spread": (None, [c_long, c_void_p, c_void_p, c_long, c_void_p, c_long, c_void_p]),
}
"""What each function gives and takes."""


def library(folder: Path) -> ctypes.CDLL | None:
    """Of those in the folder the best that this processor can run; none where nothing that fits was compiled."""
    try:
        level = opened(folder / LEVELS[0]).mill_level()
        return opened(next(path for name in LEVELS[level::-1] if (path := folder / name).exists()))
    except (OSError, AttributeError):  # absent, of another platform, or of an older source
        return None


def opened(path: Path) -> ctypes.CDLL:
    """One of the libraries, told what its functions take and give."""
    found = ctypes.CDLL(str(path))
    for name, (given, taken) in _FUNCTIONS.items():
        function = getattr(found, f"mill_{name}")
        function.restype, function.argtypes = given, taken
    return found


def place(array: np.ndarray) -> int:
    """Where the first number of an array is."""
    try:
        return addressof(_view(array))
    except (TypeError, ValueError):  # it may not be written, or is empty; this way takes three times as long
        return array.ctypes.data


class _Told(Structure):
    """An array as NumPy keeps it, in all of its versions; C reads it: in Python that would take too long."""

    _fields_ = (
        ("data", c_void_p), ("axes", c_int), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
        ("base", c_void_p), ("type", c_void_p), ("flags", c_int),
    )  # fmt: skip


def where_told() -> int:
    """How many bytes into an array's object that begins; 0 where it is not found: what is before it may differ."""
    probe = np.zeros((5, 3), np.int64)[::2].T
    for offset in range(16, 64, 8):
        if c_void_p.from_address(id(probe) + offset).value == probe.ctypes.data:
            told = _Told.from_address(id(probe) + offset)
            shape, strides = tuple(told.shape[:2]), tuple(told.strides[:2])
            same = (told.axes, shape, strides, told.type) == (2, probe.shape, probe.strides, id(probe.dtype))
            return offset if same and not told.flags & 1 else 0
    return 0


_view: Callable[[Any], c_char] = c_char.from_buffer
TOLD = where_told()
LIBRARY = library(Path(__file__).parent)
