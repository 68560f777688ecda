"""The passes of `Mlp` in C (mlp.c)."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from ctypes import addressof, c_long
from dataclasses import dataclass
from typing import Any

import numpy as np

from millstream.agents.networks.kept import KeptByRows
from millstream.core.native import place


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
    """All passes, one call each."""

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
        about = (self._net_at, rows, known[1], place(x), work.area_at)
        self._library.mill_mlp_forward(*about, work.policy_at, work.value_at)
        return work.policy, work.value, (about, known, x, work)

    def backward(self, tape: Any, d_policy: np.ndarray, d_value: np.ndarray, gradient: np.ndarray) -> None:
        """Write the gradient at the flat weights of layers and heads."""
        about = tape[0]
        d_policy, d_value = _whole(d_policy.T, (self._outputs, about[1])), _whole(d_value, (about[1],))
        self._library.mill_mlp_backward(*about, place(d_policy), place(d_value), place(gradient))

    def slopes(self, tape: Any, d_policy: np.ndarray, d_value: np.ndarray) -> np.ndarray:
        """The gradient at the rows [N, width] themselves."""
        about = tape[0]
        d_policy, d_value = _whole(d_policy.T, (self._outputs, about[1])), _whole(d_value, (about[1],))
        found = np.empty((about[1], self._width), np.float32)
        self._library.mill_mlp_slopes(*about, place(d_policy), place(d_value), place(found))
        return found

    def _make_work(self, rows: int) -> _Work:
        area = np.empty(self._library.mill_mlp_room(self._net_at, rows), np.float32)
        policy, value = np.empty((self._outputs, rows), np.float32), np.empty(rows, np.float32)
        return _Work(area, place(area), policy.T, place(policy), value, place(value))

    def _known(self, weights: np.ndarray) -> tuple[np.ndarray, int]:
        """Weights and their place: they are often the same as last time."""
        last: tuple[np.ndarray, int] | None = getattr(self._local, "last", None)
        if last is None or last[0] is not weights:
            whole = _whole(weights, (self._size,))
            last = self._local.last = (whole, place(whole))
        return last


def _whole(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array as C reads it, copied only when it is not so already."""
    found = np.asarray(array, _FLOAT, order="C")
    if found.shape != shape:
        raise ValueError(f"expected an array of {shape}, got {found.shape}")
    return found


_FLOAT = np.dtype(np.float32)
