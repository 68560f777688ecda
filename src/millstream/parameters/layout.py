"""Which tensors pushes move, where they stand in one flat vector, and what a stranger's push must look like."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from millstream.core.data import Array, Params
from millstream.core.errors import ConfigError, Diverged

Pushed: TypeAlias = Array | Mapping[str, Array]
"""Gradients or a delta: one flat vector, or an array for each trained tensor."""
WEIGHTS = "weights"
"""What agents call their flat vector; in their parameters the tensors beside it are frozen statistics."""


class Refusal(Exception):
    """A push that is not taken. It never leaves the room: the pusher gets a receipt with its words."""

    def __init__(self, cause: str, words: str):
        super().__init__(f"{cause}: {words}")
        self.cause = cause


def params_of(given: Params | Mapping[str, Array] | Array) -> Params:
    """Parameters as people have them: ours, arrays by name, or one flat array."""
    if isinstance(given, Params):
        return given
    return Params(dict(given) if isinstance(given, Mapping) else {WEIGHTS: np.asarray(given)})


@dataclass(frozen=True)
class Layout:
    """Where each trained tensor stands in the flat vector, and what the others look like."""

    trained: Mapping[str, tuple[slice, tuple[int, ...]]]
    frozen: Mapping[str, tuple[int, ...]]
    size: int

    @classmethod
    def of(cls, given: Params | Mapping[str, Array] | Array, trained: Sequence[str] | None = None) -> Layout:
        """The layout of these parameters; `trained` names what pushes move."""
        tensors = {name: np.asarray(tensor) for name, tensor in params_of(given).tensors.items()}
        names = _trained(given, tensors) if trained is None else list(dict.fromkeys(trained))
        unknown = [name for name in names if name not in tensors]
        if unknown or not names:
            raise ConfigError(f"there is nothing to train in {unknown or 'no tensor'}; the tensors are {[*tensors]}")
        places, start = {}, 0
        for name in names:
            places[name] = (slice(start, start + tensors[name].size), tensors[name].shape)
            start += tensors[name].size
        others = {name: tensor.shape for name, tensor in tensors.items() if name not in places}
        return cls(places, others, start)

    def flat(self, params: Params) -> np.ndarray:
        """The trained tensors as one vector of float32, a copy; Diverged when a number in it is not finite."""
        self.check(params)
        vector = np.empty(self.size, np.float32)
        with np.errstate(over="ignore"):
            for name, (place, _) in self.trained.items():
                vector[place] = np.asarray(params.tensors[name]).reshape(-1)
        if not finite(vector) or not all(_finite(params.tensors[name]) for name in self.frozen):
            raise Diverged("these parameters hold numbers that are not finite in float32; the server keeps what it had")
        return vector

    def check(self, params: Params) -> None:
        """Raise unless these parameters have the same names and shapes."""
        found = {name: np.shape(tensor) for name, tensor in params.tensors.items()}
        expected = {name: shape for name, (_, shape) in self.trained.items()} | dict(self.frozen)
        if found != expected:
            wrong = {name: found.get(name) for name in {**expected, **found} if found.get(name) != expected.get(name)}
            wanted = {name: expected.get(name) for name in wrong}
            raise ConfigError(f"parameters keep their names and shapes; got {wrong}, the server has {wanted}")

    def kept(self, params: Params) -> Params:
        """The parameters with copies of the frozen tensors that nobody can write to."""
        copies = {name: _locked(np.array(params.tensors[name])) for name in self.frozen}
        return Params({**params.tensors, **copies}, MappingProxyType(dict(params.hyper)))

    def over(self, vector: np.ndarray, kept: Params) -> Params:
        """Parameters over a vector, which nobody may change from now on; the frozen tensors go on as they are."""
        _locked(vector)
        tensors = dict(kept.tensors)
        for name, (place, shape) in self.trained.items():
            tensors[name] = vector[place].reshape(shape)
        return Params(MappingProxyType(tensors), kept.hyper)

    def vector(self, pushed: Pushed) -> np.ndarray:
        """A push as a vector of float32 of our own, every number finite; Refusal otherwise."""
        pieces = self._named(pushed) if isinstance(pushed, Mapping) else self._whole(pushed)
        vector = np.empty(self.size, np.float32)  # copied before it is checked: the pusher may still write to its own
        with np.errstate(over="ignore", invalid="ignore"):
            for place, array in pieces:
                vector[place] = array.reshape(-1)
        if not finite(vector):
            raise Refusal("not finite", "it holds NaN or infinity, or a number too large for float32")
        return vector

    def _whole(self, pushed: Array) -> list[tuple[slice, np.ndarray]]:
        array, shapes = _array(pushed, "it"), [shape for _, shape in self.trained.values()]
        if array.shape != (self.size,) and [array.shape] != shapes:
            raise Refusal("shape", f"a flat push has shape ({self.size},), got {array.shape}")
        return [(slice(0, self.size), array)]

    def _named(self, pushed: Mapping[str, Array]) -> list[tuple[slice, np.ndarray]]:
        if pushed.keys() != self.trained.keys():
            raise Refusal("names", f"a push names {[*self.trained]}, got {[*pushed]!s:.200}")
        pieces = []
        for name, (place, shape) in self.trained.items():
            array = _array(pushed[name], repr(name))
            if array.shape != shape:
                raise Refusal("shape", f"{name!r} has shape {shape}, got {array.shape}")
            pieces.append((place, array))
        return pieces


def finite(vector: np.ndarray) -> bool:
    """Whether every number is. A float64 sum of float32 cannot overflow, so it is finite exactly when they all are."""
    with np.errstate(invalid="ignore"):
        return math.isfinite(np.add.reduce(vector, dtype=np.float64))


def _trained(given: object, tensors: Mapping[str, np.ndarray]) -> list[str]:
    """An agent's weights alone, because its other tensors are statistics; of arrays by name, all that hold floats."""
    if WEIGHTS in tensors and not isinstance(given, Mapping):
        return [WEIGHTS]
    return [name for name, tensor in tensors.items() if tensor.dtype.kind == "f"]


def _locked(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def _finite(tensor: Array) -> bool:
    array = np.asarray(tensor)
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _array(value: Any, name: str) -> np.ndarray:
    """What came, as an array of real numbers."""
    if isinstance(value, str):
        raise Refusal("type", f"{name} is no array: {value:.200}")
    try:
        array = np.asarray(value)
    except Exception as error:  # a stranger's object may raise anything, and must not end the server for it
        raise Refusal("type", f"{name} is not an array: {error!s:.200}") from error
    if array.dtype.kind not in "fiu":
        raise Refusal("type", f"{name} holds {array.dtype}, and only real numbers are taken")
    return array
