"""A multi-layer perceptron with its own way back: the default for small networks on a CPU.

Policy and value are two towers of equal shape. The passes are written twice: in C (mlp.c), compiled where a compiler
was there at installation, and in NumPy for everywhere else. They agree to single precision; the first is two to
three times as fast where layers are 64 wide.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.random import Generator

from millstream.agents.features import VECTOR
from millstream.agents.networks.compiled import CompiledPasses
from millstream.agents.networks.kept import KeptByRows
from millstream.core import native
from millstream.core.data import Array, Carry
from millstream.core.errors import ConfigError


class Passes(Protocol):
    """Forwards through layers and heads, and back. What is given lives until this thread's next call of this size."""

    def forward(self, weights: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any]:
        """Policy [N, P] and value [N] for rows [N, width], and a tape."""

    def backward(self, tape: Any, d_policy: np.ndarray, d_value: np.ndarray, gradient: np.ndarray) -> None:
        """Write the gradient at the flat weights of layers and heads."""

    def slopes(self, tape: Any, d_policy: np.ndarray, d_value: np.ndarray) -> np.ndarray:
        """The gradient at the rows [N, width] themselves."""


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
        self.shapes = tower_shapes(width, outputs, spread, hidden, self.towers)
        edges = np.cumsum([0, *(math.prod(shape) for shape in self.shapes.values())]).tolist()
        self._places = {name: slice(a, b) for name, a, b in zip(self.shapes, edges, edges[1:], strict=False)}
        self.size = edges[-1]
        self._passes: Passes
        if native.LIBRARY is None or max(hidden) > 512:  # where layers are so wide, BLAS is the faster
            self._passes = NumPyPasses(self.names, self.hidden, outputs, self.towers, activation)
        else:
            widths = (width, *self.hidden)
            self._passes = CompiledPasses(native.LIBRARY, self.size, widths, outputs, self.towers, activation)

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
        policy, value, tape = self._passes.forward(weights, inputs[VECTOR])
        outputs = {"policy": policy, "value": value}
        if "log_std" in self.shapes:
            outputs["log_std"] = weights[self._places["log_std"]]
        return outputs, tape

    def backward(self, tape: Any, gradients: Mapping[str, Array], out: Array | None = None) -> np.ndarray:
        """Gradients at the outputs carried back to the flat weights; into `out` where it is given."""
        flat = np.empty(self.size, np.float32) if out is None else out
        self._passes.backward(tape, gradients["policy"], gradients["value"], flat)
        if "log_std" in self.shapes:
            flat[self._places["log_std"]] = gradients["log_std"]
        return flat

    def slopes(self, tape: Any, gradients: Mapping[str, Array]) -> np.ndarray:
        """Gradients at the outputs carried back to the input: half the work of `backward`."""
        return self._passes.slopes(tape, gradients["policy"], gradients["value"])


@dataclass
class _Work:
    """Arrays for one number of rows: what each layer gave, and what comes back to it."""

    hidden: list[np.ndarray]  # [towers, N, width]
    back: list[np.ndarray]
    policy: np.ndarray  # [P, N]: choices lead in memory, so that what runs over choices runs over long rows
    value: np.ndarray  # [N]
    ones: np.ndarray  # [1, N]


class NumPyPasses:
    """Both towers at once: a layer is one matrix product and one activation."""

    def __init__(
        self,
        names: Callable[[np.ndarray], dict[str, np.ndarray]],
        hidden: Sequence[int],
        outputs: int,
        towers: int,
        activation: str,
    ):
        self._names, self._hidden, self._outputs, self._towers = names, hidden, outputs, towers
        self._bend, self._slope = ACTIVATIONS[activation]
        self._work = KeptByRows(self._make_work)
        self._local = threading.local()

    def forward(self, weights: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any]:
        """Policy [N, P] and value [N] for rows [N, width], and a tape."""
        named, work = self._named(weights), self._work(len(x))
        below: np.ndarray = x
        for index, layer in enumerate(work.hidden):
            np.matmul(below, named[f"hidden.{index}.weight"], out=layer)
            layer += named[f"hidden.{index}.bias"]
            self._bend(layer)
            below = layer
        np.matmul(named["policy.weight"].T, below[0].T, out=work.policy)
        work.policy += named["policy.bias"][:, None]
        np.matmul(below[-1], named["value.weight"][:, 0], out=work.value)
        work.value += named["value.bias"]
        return work.policy.T, work.value, (named, x, work)

    def backward(self, tape: Any, d_policy: np.ndarray, d_value: np.ndarray, gradient: np.ndarray) -> None:
        """Write the gradient at the flat weights of layers and heads."""
        _, x, work = tape
        grads = self._names(gradient)
        top = work.hidden[-1]
        np.matmul(top[0].T, d_policy, out=grads["policy.weight"])
        np.matmul(d_value, top[-1], out=grads["value.weight"][:, 0])
        np.matmul(work.ones[0], d_policy, out=grads["policy.bias"])
        grads["value.bias"][0] = d_value.sum()
        for index, delta in self._deltas(tape, d_policy, d_value):
            below = work.hidden[index - 1] if index else x
            np.matmul(np.swapaxes(below, -1, -2), delta, out=grads[f"hidden.{index}.weight"])
            np.matmul(work.ones, delta, out=grads[f"hidden.{index}.bias"])  # a sum, four times as fast

    def slopes(self, tape: Any, d_policy: np.ndarray, d_value: np.ndarray) -> np.ndarray:
        """The gradient at the rows [N, width] themselves."""
        *_, (_, delta) = self._deltas(tape, d_policy, d_value)
        found: np.ndarray = np.matmul(delta, np.swapaxes(tape[0]["hidden.0.weight"], -1, -2)).sum(axis=0)
        return found

    def _deltas(self, tape: Any, d_policy: np.ndarray, d_value: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Gradients at each layer before it was bent, from the last to the first."""
        named, _, work = tape
        back = work.back[-1]
        np.matmul(d_policy, named["policy.weight"].T, out=back[0])
        if self._towers == 2:
            np.multiply(d_value[:, None], named["value.weight"].T, out=back[1])
        else:
            back[0] += d_value[:, None] * named["value.weight"].T
        for index in range(len(work.hidden) - 1, -1, -1):
            delta = work.back[index]
            self._slope(delta, work.hidden[index])
            yield index, delta
            if index:
                np.matmul(delta, np.swapaxes(named[f"hidden.{index}.weight"], -1, -2), out=work.back[index - 1])

    def _named(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        known = getattr(self._local, "named", None)
        if known is None or known[0] is not weights:
            known = self._local.named = (weights, self._names(weights))
        return known[1]

    def _make_work(self, rows: int) -> _Work:
        layers = [np.empty((self._towers, rows, width), np.float32) for width in self._hidden]
        return _Work(
            layers,
            [np.empty_like(layer) for layer in layers],
            np.empty((self._outputs, rows), np.float32),
            np.empty(rows, np.float32),
            np.ones((1, rows), np.float32),
        )


def _tanh(layer: np.ndarray) -> None:
    np.tanh(layer, out=layer)


def _tanh_slope(delta: np.ndarray, given: np.ndarray) -> None:
    np.multiply(given, given, out=given)
    np.subtract(1, given, out=given)
    delta *= given


def _relu(layer: np.ndarray) -> None:
    np.maximum(layer, 0, out=layer)


def _relu_slope(delta: np.ndarray, given: np.ndarray) -> None:
    delta *= given > 0


ACTIVATIONS = {"tanh": (_tanh, _tanh_slope), "relu": (_relu, _relu_slope)}
"""In place: the bend of a layer, and what comes back times its slope, from what the bend gave; that is used up."""


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
