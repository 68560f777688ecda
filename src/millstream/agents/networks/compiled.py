"""What is written in C, called through ctypes: the interpreter's lock is free meanwhile. Here are the passes of `Mlp`.

Installation compiles them where there is a compiler, once for each kind of processor.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from ctypes import addressof, c_char, c_float, c_int, c_long, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from millstream.agents.networks.kept import KeptByRows

LEVELS = ("libnetworks.so", "libnetworks-avx2.so", "libnetworks-avx512.so")


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
    for name, given, taken in (
        ("level", c_int, []),
        ("mlp_room", c_long, [c_void_p, c_long]),
        ("mlp_forward", None, [c_void_p, c_long, *5 * [c_void_p]]),
        ("mlp_backward", None, [c_void_p, c_long, *6 * [c_void_p]]),
        ("conv_room", c_long, [c_void_p, c_long]),
        ("conv_forward", None, [c_void_p, c_long, c_void_p, c_float, *3 * [c_void_p]]),
        ("conv_backward", None, [c_void_p, c_long, c_void_p, c_float, *4 * [c_void_p]]),
    ):
        function = getattr(found, f"mill_{name}")
        function.restype, function.argtypes = given, taken
    return found


LIBRARY = library(Path(__file__).parent)


@dataclass
class _Work:
    """Arrays for one number of rows, and where they are."""

    area: np.ndarray  # what C keeps between the passes
    area_at: int
    policy: np.ndarray  # [N, P]: choices lead in memory, so that what runs over choices runs over long rows
    policy_at: int
    value: np.ndarray  # [N]
    value_at: int


class CompiledPasses:
    """Both passes, one call each."""

    def __init__(
        self, library: ctypes.CDLL, size: int, widths: Sequence[int], outputs: int, towers: int, activation: str
    ):
        self._library, self._size, self._width, self._outputs = library, size, widths[0], outputs
        self._net = (c_long * (4 + len(widths)))(towers, outputs, activation == "relu", len(widths) - 1, *widths)
        self._net_at = addressof(self._net)
        self._work = KeptByRows(self._make_work)
        self._local = threading.local()

    def forward(self, weights: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any]:
        """Policy [N, P] and value [N] for rows [N, width], and a tape."""
        rows = len(x)
        x, known, work = _whole(x, (rows, self._width)), self._known(weights), self._work(rows)
        about = (self._net_at, rows, known[1], _place(x), work.area_at)
        self._library.mill_mlp_forward(*about, work.policy_at, work.value_at)
        return work.policy, work.value, (about, known, x, work)

    def backward(self, tape: Any, d_policy: np.ndarray, d_value: np.ndarray, gradient: np.ndarray) -> None:
        """Write the gradient at the flat weights of layers and heads."""
        about = tape[0]
        d_policy, d_value = _whole(d_policy.T, (self._outputs, about[1])), _whole(d_value, (about[1],))
        self._library.mill_mlp_backward(*about, _place(d_policy), _place(d_value), _place(gradient))

    def _make_work(self, rows: int) -> _Work:
        area = np.empty(self._library.mill_mlp_room(self._net_at, rows), np.float32)
        policy, value = np.empty((self._outputs, rows), np.float32), np.empty(rows, np.float32)
        return _Work(area, _place(area), policy.T, _place(policy), value, _place(value))

    def _known(self, weights: np.ndarray) -> tuple[np.ndarray, int]:
        """Weights and their place: they are often the same as last time."""
        last: tuple[np.ndarray, int] | None = getattr(self._local, "last", None)
        if last is None or last[0] is not weights:
            whole = _whole(weights, (self._size,))
            last = self._local.last = (whole, _place(whole))
        return last


def _whole(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array as C reads it, copied only when it is not so already."""
    found = np.asarray(array, _FLOAT, order="C")
    if found.shape != shape:
        raise ValueError(f"expected an array of {shape}, got {found.shape}")
    return found


def _place(array: np.ndarray) -> int:
    """Where its first number is."""
    try:
        return addressof(_view(array))
    except (TypeError, ValueError):  # it may not be written, or is empty; this way takes three times as long
        return array.ctypes.data


_FLOAT = np.dtype(np.float32)
_view: Callable[[Any], c_char] = c_char.from_buffer
