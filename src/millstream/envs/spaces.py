"""Gymnasium's spaces in our words: what an environment shows becomes named arrays, what we choose becomes its actions.

This file knows Gymnasium's spaces by their shape only and imports nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from millstream.core.data import Array
from millstream.core.errors import EnvError
from millstream.core.spec import MASK, SINGLE, Box, Discrete, MultiDiscrete, Space


@dataclass(frozen=True)
class Leaf:
    """One named array of an observation: where it stands in what Gymnasium gives, and what we make of it."""

    name: str
    path: tuple[str | int, ...]
    space: Space
    given: np.dtype
    """The type that the environment promised."""
    shape: tuple[int, ...]
    """The shape that the environment promised; ours is flat where choices stand in a grid."""
    start: Array | None = None
    """What the lowest choice is called there, where that is not 0."""

    def find(self, observation: Any) -> Any:
        """This leaf's part of an observation."""
        for key in self.path:
            observation = observation[key]
        return observation

    def fault(self, array: Array, lead: tuple[int, ...] = ()) -> str | None:
        """How an array, with `lead` dimensions before its own, differs from what was promised."""
        if array.shape != (*lead, *self.shape):
            return f"observation {self.name!r} has shape {array.shape}, its space promises {(*lead, *self.shape)}"
        if array.dtype != self.given and not np.can_cast(array.dtype, self.given, "same_kind"):
            return f"observation {self.name!r} is {array.dtype}, its space promises {self.given}"
        return None


def leaves(space: Any) -> tuple[list[Leaf], Leaf | None]:
    """The named arrays of an observation space, and the one that says which actions are legal."""
    found = _leaves(space, ())
    masks = [leaf for leaf in found if leaf.path[-1:] == (MASK,)]
    shown = [leaf for leaf in found if leaf not in masks]
    if not shown:
        raise EnvError(f"the observation space {space} shows nothing")
    return shown, masks[0] if masks else None


def choices(space: Any) -> Space:
    """An action space in our words."""
    if _kind(space) not in ("Box", "Discrete", "MultiDiscrete", "MultiBinary"):
        raise EnvError(f"the action space {space} is not supported; use Discrete, MultiDiscrete, MultiBinary or Box")
    return _leaf(space, ()).space


def _leaves(space: Any, path: tuple[str | int, ...]) -> list[Leaf]:
    kind = _kind(space)
    if kind == "Dict":
        return [leaf for key, part in space.spaces.items() for leaf in _leaves(part, (*path, key))]
    if kind == "Tuple":
        return [leaf for at, part in enumerate(space.spaces) for leaf in _leaves(part, (*path, at))]
    return [_leaf(space, path)]


def _leaf(space: Any, path: tuple[str | int, ...]) -> Leaf:
    name = ".".join(str(key) for key in path) or SINGLE
    kind = _kind(space)
    if kind == "Box":
        return Leaf(name, path, _box(space), np.dtype(space.dtype), tuple(space.shape))
    if kind == "Discrete":
        start = np.int64(space.start) if int(space.start) else None
        return Leaf(name, path, Discrete(int(space.n)), np.dtype(np.int64), (), start)
    if kind == "MultiDiscrete":
        grid = np.asarray(space.nvec)
        begin = np.asarray(getattr(space, "start", np.zeros_like(grid))).astype(np.int64)
        nvec = MultiDiscrete(tuple(int(n) for n in grid.ravel()))
        return Leaf(name, path, nvec, np.dtype(np.int64), grid.shape, begin.ravel() if begin.any() else None)
    if kind == "MultiBinary":
        return Leaf(name, path, MultiDiscrete((2,) * int(np.prod(space.shape))), np.dtype(np.int8), tuple(space.shape))
    where = f" of {name!r}" if path else ""
    raise EnvError(f"the observation space {space}{where} is not supported; flatten it to a Box")


def _box(space: Any) -> Box:
    # Bytes stay bytes, they are small; every other number becomes what networks compute with.
    dtype = "uint8" if space.dtype == np.uint8 else "float32"
    return Box(tuple(space.shape), dtype, _edge(space.low), _edge(space.high))


def _edge(values: Array) -> float | tuple[float, ...]:
    flat = np.asarray(values, np.float64).ravel()
    if flat.size and (flat == flat[0]).all():
        return float(flat[0])
    return tuple(flat.tolist())


def _kind(space: Any) -> str:
    """The name of the nearest class of Gymnasium, so that a user's subclass of Box is a Box."""
    for cls in type(space).__mro__:
        if cls.__module__.startswith("gymnasium.spaces"):
            return str(cls.__name__)
    return type(space).__name__


class Reader:
    """Copies observations into arrays of ours, and refuses those that are not what the space promised."""

    def __init__(self, parts: Sequence[Leaf], slots: int) -> None:
        self.parts = parts
        self.slots = slots
        self.arrays = {part.name: np.zeros((slots, *part.space.shape), part.space.dtype) for part in parts}

    def read(self, batch: Any, rows: Array | slice = slice(None)) -> None:
        """Take over a batch of observations, or only some of its slots."""
        for part in self.parts:
            given = self._checked(part, part.find(batch), (self.slots,))
            target = self.arrays[part.name]
            target[rows] = given.reshape(target.shape)[rows]
            if part.start is not None:
                target[rows] -= part.start
            self._plausible(part, target)

    def pick(self, singles: Sequence[Any]) -> dict[str, Array]:
        """Observations of single slots, stacked in their order."""
        picked = {}
        for part in self.parts:
            rows = np.empty((len(singles), *part.space.shape), part.space.dtype)
            for at, single in enumerate(singles):
                rows[at] = self._checked(part, part.find(single)).reshape(part.space.shape)
            if part.start is not None:
                rows -= part.start
            self._plausible(part, rows)
            picked[part.name] = rows
        return picked

    def at(self, slots: Array) -> dict[str, Array]:
        """Copies of what some slots show now."""
        return {name: array[slots] for name, array in self.arrays.items()}

    def _checked(self, part: Leaf, given: Any, lead: tuple[int, ...] = ()) -> Array:
        array = np.asarray(given)
        if fault := part.fault(array, lead):
            raise EnvError(fault)
        return array

    def _plausible(self, part: Leaf, array: Array) -> None:
        if isinstance(part.space, Box):
            if part.space.dtype == "float32" and not finite(array):
                slot = int(np.argwhere(~np.isfinite(array))[0][0])
                bad = array[~np.isfinite(array)][0]
                raise EnvError(f"observation {part.name!r} of slot {slot} holds {bad}; check its arithmetic")
        elif array.size:
            top = top_of(part.space)
            if array.min() < 0 or (array >= top).any():
                bad = array[_outside(array, top)][0]
                raise EnvError(f"observation {part.name!r} holds {bad}, not one of {part.space}")


def top_of(space: Discrete | MultiDiscrete) -> Array | int:
    """What every choice must stay below; one number where it is the same for all."""
    tops = (space.n,) if isinstance(space, Discrete) else space.nvec
    return np.array(tops, np.int64) if len(set(tops)) > 1 else tops[0]


class Chooser:
    """Turns our actions into the environment's, and refuses those outside its space."""

    def __init__(self, space: Any, slots: int) -> None:
        self.space = choices(space)
        leaf = _leaf(space, ())
        self._start = leaf.start
        self._given = np.dtype(space.dtype)
        self._shape = (slots, *self.space.shape)
        self._batch = (slots, *leaf.shape)
        if isinstance(self.space, Box):
            self._low, self._high = np.asarray(space.low), np.asarray(space.high)
        else:
            self._top = top_of(self.space)

    def translate(self, actions: Array) -> Array:
        """The same choices in the environment's own terms; continuous ones are clipped to its bounds."""
        array = np.asarray(actions)
        if array.shape != self._shape:
            raise EnvError(f"actions have shape {array.shape}, the environment takes {self._shape}")
        if isinstance(self.space, Box):
            return self._clipped(array)
        if array.dtype.kind not in "iu":
            raise EnvError(f"actions are {array.dtype}, the environment takes integers")
        if array.min() < 0 or (array >= self._top).any():
            raise EnvError(f"action {array[_outside(array, self._top)][0]} is not one of {self.space}")
        if self._start is not None:
            array = array + self._start
        return array.astype(self._given, copy=False).reshape(self._batch)

    def _clipped(self, array: Array) -> Array:
        if not finite(array):
            raise EnvError(f"actions hold {array[~np.isfinite(array)][0]}; the policy's numbers are no longer finite")
        clipped = np.clip(array, self._low, self._high)
        return clipped.astype(self._given, copy=False).reshape(self._batch)


def finite(array: Array) -> bool:
    """Whether every number is finite."""
    return bool(np.isfinite(array).all())


def legal(given: Any, rows: Array, width: int) -> Array:
    """Masks of the slots in `rows` as booleans [slots, width]; everything is legal in the others."""
    masks = np.ones((len(rows), width), bool)
    batch = np.asarray(given) if isinstance(given, np.ndarray) else np.array(given)
    if batch.dtype == object:  # one object a slot: lists, or one array a choice
        for slot in rows.nonzero()[0]:
            masks[slot] = _mask(np.concatenate([np.atleast_1d(part) for part in batch[slot]]), (width,))
        return masks
    masks[rows] = _mask(batch, masks.shape)[rows]
    return masks


def _mask(array: Array, shape: tuple[int, ...]) -> Array:
    if array.size != np.prod(shape):
        raise EnvError(f"{MASK} has shape {array.shape}, its action space needs {shape}")
    return array.reshape(shape).astype(bool)


def _outside(array: Array, top: Array | int) -> Array:
    return (array < 0) | (array >= top)
