"""A multi-layer perceptron in NumPy with its own way back: the default for small networks on a CPU.

Policy and value are two towers of equal shape, computed together: every hidden layer is one array
[towers, N, width], so that a layer is one matrix product and one activation for both. Work arrays are
kept for each thread and number of rows; nothing large is allocated while training.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from millstream.agents.features import VECTOR
from millstream.agents.networks import activations
from millstream.core.data import Array, Carry
from millstream.core.errors import ConfigError


@dataclass
class _Work:
    """Arrays for one number of rows: what each layer gave, and what comes back to it."""

    hidden: list[np.ndarray]  # [towers, N, width]
    back: list[np.ndarray]
    policy: np.ndarray  # [P, N]: choices lead in memory, so that what runs over choices runs over long rows
    value: np.ndarray  # [N]
    ones: np.ndarray  # [1, N]


class Mlp:
    """`hidden` layers for policy and value, apart by default."""

    recurrent = False
    images = False

    def __init__(
        self,
        width: int,
        outputs: int,
        spread: int = 0,
        hidden: Sequence[int] = (64, 64),
        activation: str = "tanh",
        shared: bool = False,
    ):
        check_shape(hidden, activation)
        self.towers, self.hidden, self.activation = (1 if shared else 2), tuple(hidden), activation
        self._bends = activations.named(activation)
        self.shapes = tower_shapes(width, outputs, spread, hidden, self.towers)
        edges = np.cumsum([0, *(math.prod(shape) for shape in self.shapes.values())]).tolist()
        self._places = {name: slice(a, b) for name, a, b in zip(self.shapes, edges, edges[1:], strict=False)}
        self.size = edges[-1]
        self._local = threading.local()

    def init(self, rng: Generator) -> np.ndarray:
        """Orthogonal weights, as is usual for policies: small steps at first, no opinion."""
        weights = np.zeros(self.size, np.float32)
        gains = {"policy.weight": 0.01, "value.weight": 1.0}
        for name, view in self.names(weights).items():
            if name.endswith("weight"):
                for matrix in view.reshape(-1, *view.shape[-2:]):
                    matrix[...] = orthogonal(matrix.shape, gains.get(name, math.sqrt(2)), rng)
        return weights

    def names(self, weights: Array) -> dict[str, Array]:
        """The flat vector as named views."""
        return {name: weights[self._places[name]].reshape(shape) for name, shape in self.shapes.items()}

    def place(self, array: Array) -> Array:
        """NumPy arrays are where they belong."""
        return array

    def carry(self, slots: int) -> Carry:
        """Nothing is remembered."""
        return {}

    def act(
        self, weights: Array, inputs: Mapping[str, Array], carry: Carry, first: Array
    ) -> tuple[dict[str, Array], Carry]:
        """Outputs for one step of all slots."""
        outputs, _ = self.forward(weights, inputs)
        return outputs, {}

    def forward(
        self, weights: Array, inputs: Mapping[str, Array], carry: Carry | None = None, first: Array | None = None
    ) -> tuple[dict[str, Array], Any]:
        """Outputs for rows, and a tape. Both live in this thread's work arrays until its next call of this size."""
        x, named = inputs[VECTOR], self._named(weights)
        work = self._work(len(x))
        below: np.ndarray = x
        for index, layer in enumerate(work.hidden):
            np.matmul(below, named[f"hidden.{index}.weight"], out=layer)
            self._bends.bend(layer, named[f"hidden.{index}.bias"])
            below = layer
        np.matmul(named["policy.weight"].T, below[0].T, out=work.policy)
        work.policy += named["policy.bias"][:, None]
        np.matmul(below[-1], named["value.weight"][:, 0], out=work.value)
        work.value += named["value.bias"]
        outputs = {"policy": work.policy.T, "value": work.value}
        if "log_std" in named:
            outputs["log_std"] = named["log_std"]
        return outputs, (x, work, named)

    def backward(self, tape: Any, gradients: Mapping[str, Array]) -> np.ndarray:
        """Gradients at the outputs carried back to the flat weights."""
        x, work, named = tape
        flat = np.empty(self.size, np.float32)
        grads = self.names(flat)
        d_policy, d_value = gradients["policy"], gradients["value"]
        top, back = work.hidden[-1], work.back[-1]
        np.matmul(top[0].T, d_policy, out=grads["policy.weight"])
        np.matmul(d_value, top[-1], out=grads["value.weight"][:, 0])
        np.matmul(work.ones[0], d_policy, out=grads["policy.bias"])
        grads["value.bias"][0] = d_value.sum()
        if "log_std" in grads:
            grads["log_std"][...] = gradients["log_std"]
        np.matmul(d_policy, named["policy.weight"].T, out=back[0])
        if self.towers == 2:
            np.multiply(d_value[:, None], named["value.weight"].T, out=back[1])
        else:
            back[0] += d_value[:, None] * named["value.weight"].T
        for index in range(len(self.hidden) - 1, -1, -1):
            self._bends.back(work.back[index], work.hidden[index])
            delta, below = work.back[index], work.hidden[index - 1] if index else x
            np.matmul(np.swapaxes(below, -1, -2), delta, out=grads[f"hidden.{index}.weight"])
            np.matmul(work.ones, delta, out=grads[f"hidden.{index}.bias"])  # a sum, four times as fast
            if index:
                np.matmul(delta, np.swapaxes(named[f"hidden.{index}.weight"], -1, -2), out=work.back[index - 1])
        return flat

    def _named(self, weights: Array) -> dict[str, Array]:
        known = getattr(self._local, "named", None)
        if known is None or known[0] is not weights:
            known = self._local.named = (weights, self.names(weights))
        return known[1]

    def _work(self, rows: int) -> _Work:
        kept: dict[int, _Work] = self._local.__dict__.setdefault("work", {})
        if rows not in kept:
            if len(kept) >= 8:  # odd sizes come and go; the usual few stay
                kept.pop(next(iter(kept)))
            layers = [np.empty((self.towers, rows, width), np.float32) for width in self.hidden]
            outputs = self.shapes["policy.bias"][0]
            kept[rows] = _Work(
                layers,
                [np.empty_like(layer) for layer in layers],
                np.empty((outputs, rows), np.float32),
                np.empty(rows, np.float32),
                np.ones((1, rows), np.float32),
            )
        return kept[rows]


def check_shape(hidden: Sequence[int], activation: str, may_be_empty: bool = False) -> None:
    """Raise when a network cannot be built so."""
    if activation not in ("tanh", "relu"):
        raise ConfigError(f"network.activation should be tanh or relu, got {activation!r}")
    if not hidden and not may_be_empty:
        raise ConfigError("network.hidden should name at least one layer, such as [64, 64]")
    if any(width < 1 for width in hidden):
        raise ConfigError(f"network.hidden should hold widths of at least 1, got {list(hidden)}")


def tower_shapes(
    width: int, outputs: int, spread: int, hidden: Sequence[int], towers: int
) -> dict[str, tuple[int, ...]]:
    """The weights of hidden layers and heads by name, in the order of the flat vector."""
    shapes: dict[str, tuple[int, ...]] = {}
    for index, (inner, outer) in enumerate(zip((width, *hidden), hidden, strict=False)):
        shapes[f"hidden.{index}.weight"] = (towers, inner, outer)
        shapes[f"hidden.{index}.bias"] = (towers, 1, outer)
    for head, wide in (("policy", outputs), ("value", 1)):
        shapes[f"{head}.weight"] = ((width, *hidden)[-1], wide)
        shapes[f"{head}.bias"] = (wide,)
    return shapes | {"log_std": (spread,)} if spread else shapes


def orthogonal(shape: tuple[int, ...], gain: float, rng: Generator) -> np.ndarray:
    """Rows or columns at right angles, whichever are fewer (Saxe et al. 2014)."""
    rows, columns = shape
    q, r = np.linalg.qr(rng.standard_normal((max(rows, columns), min(rows, columns))))
    q = q * np.sign(np.diag(r))
    return (gain * (q if rows >= columns else q.T)).astype(np.float32)
