"""What an environment shows and takes: spaces, and the spec that a policy is built for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

SINGLE = "obs"
"""The name of the only observation of an environment that does not name them."""
MASK = "action_mask"
"""The key of `info` or of a dictionary observation under which an environment says which actions are legal."""


@dataclass(frozen=True, slots=True)
class Box:
    """Numbers in a shape; images are boxes of uint8 with two or three dimensions."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float | tuple[float, ...] = -math.inf
    high: float | tuple[float, ...] = math.inf

    @property
    def is_image(self) -> bool:
        """Whether a convolution makes sense here."""
        return self.dtype == "uint8" and len(self.shape) in (2, 3)

    @property
    def width(self) -> int:
        """How many numbers a network sees."""
        return math.prod(self.shape)

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Low and high, each of this shape."""
        low, high = (
            np.broadcast_to(np.asarray(edge, np.float64).reshape(np.shape(edge) and self.shape), self.shape)
            for edge in (self.low, self.high)
        )
        return low, high


@dataclass(frozen=True, slots=True)
class Discrete:
    """One of n."""

    n: int

    shape = ()
    dtype = "int64"

    @property
    def width(self) -> int:
        """How many numbers a network sees: one a choice."""
        return self.n


@dataclass(frozen=True, slots=True)
class MultiDiscrete:
    """Several choices at once."""

    nvec: tuple[int, ...]

    dtype = "int64"

    @property
    def shape(self) -> tuple[int, ...]:
        """One number a choice."""
        return (len(self.nvec),)

    @property
    def width(self) -> int:
        """How many numbers a network sees: one a choice of each."""
        return sum(self.nvec)


Space: TypeAlias = Box | Discrete | MultiDiscrete


@dataclass(frozen=True)
class EnvSpec:
    """The contract between an environment and the policy that plays it."""

    id: str
    observations: Mapping[str, Space]
    action: Space
    stack: int = 1
    """How many frames a policy sees at once; they travel unstacked."""
    masked: bool = False
    """Whether each observation comes with the actions that are legal."""
    max_episode_steps: int | None = None
    reward_threshold: float | None = None
    fps: int = field(default=30, compare=False)

    @property
    def mask_width(self) -> int:
        """How many choices a mask speaks of."""
        return 0 if isinstance(self.action, Box) else self.action.width

    def to_json(self) -> dict[str, Any]:
        """Plain values, for files and wires."""
        return {
            "id": self.id,
            "observations": {name: space_to_json(space) for name, space in self.observations.items()},
            "action": space_to_json(self.action),
            "stack": self.stack,
            "masked": self.masked,
            "max_episode_steps": self.max_episode_steps,
            "reward_threshold": self.reward_threshold,
            "fps": self.fps,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> EnvSpec:
        """The inverse of `to_json`."""
        spaces = {name: space_from_json(space) for name, space in value["observations"].items()}
        return cls(**{**value, "observations": spaces, "action": space_from_json(value["action"])})

    def difference(self, other: EnvSpec, who: str = "the policy", expects: str = "expects") -> str | None:
        """The first thing in which what was made for this spec would not fit the other; None when it fits."""
        if set(self.observations) != set(other.observations):
            mine, theirs = (", ".join(spec.observations) or "nothing" for spec in (self, other))
            return f"{who} {expects} the observations {mine}; this environment shows {theirs}"
        for name, space in self.observations.items():
            if space != other.observations[name]:
                mine, theirs = _in_words(space, other.observations[name])
                return f"{who} {expects} {name} to be {mine}, this environment shows {theirs}"
        if self.action != other.action:
            chooses, takes = _in_words(self.action, other.action)
            return f"{who} chooses {chooses}, this environment takes {takes}"
        if self.stack != other.stack:
            return f"{who} {expects} {self.stack} frames at once, this environment shows {other.stack}"
        if self.masked != other.masked:
            words = ("no action masks", "action masks")
            return f"{who} {expects} {words[self.masked]}, this environment shows {words[other.masked]}"
        return None


def _in_words(one: Space, other: Space) -> tuple[str, str]:
    """Two spaces that differ, as briefly as shows in what; bounds only where all else is equal."""
    alike = isinstance(one, Box) and isinstance(other, Box) and (one.shape, one.dtype) == (other.shape, other.dtype)
    return _words(one, alike), _words(other, alike)


def _words(space: Space, bounds: bool) -> str:
    if isinstance(space, Discrete):
        return f"one of {space.n}"
    if isinstance(space, MultiDiscrete):
        return f"one each of {_short(space.nvec)}"
    edges = f" from {_short(space.low)} to {_short(space.high)}" if bounds else ""
    return f"{space.dtype} of shape {space.shape}{edges}"


def _short(edge: float | tuple[float, ...]) -> str:
    if not isinstance(edge, tuple):
        return f"{edge:.4g}"
    return f"({', '.join(f'{number:.4g}' for number in edge[:6])}{', ...' if len(edge) > 6 else ''})"


def space_to_json(space: Space) -> dict[str, Any]:
    """A space as plain values; infinities become None."""
    if isinstance(space, Discrete):
        return {"n": space.n}
    if isinstance(space, MultiDiscrete):
        return {"nvec": list(space.nvec)}
    return {"shape": list(space.shape), "dtype": space.dtype, "low": _edge(space.low), "high": _edge(space.high)}


def space_from_json(value: Mapping[str, Any]) -> Space:
    """The inverse of `space_to_json`."""
    if "n" in value:
        return Discrete(value["n"])
    if "nvec" in value:
        return MultiDiscrete(tuple(value["nvec"]))
    return Box(tuple(value["shape"]), value["dtype"], _open(value["low"], -math.inf), _open(value["high"], math.inf))


def _edge(edge: float | tuple[float, ...]) -> Any:
    if isinstance(edge, tuple):
        return [_edge(number) for number in edge]
    return edge if math.isfinite(edge) else None


def _open(edge: Any, missing: float) -> float | tuple[float, ...]:
    if isinstance(edge, list | tuple):
        return tuple(missing if number is None else number for number in edge)
    return missing if edge is None else edge
