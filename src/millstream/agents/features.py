"""From raw observations to what a network reads: frames stacked, numbers normalised, choices one-hot."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from millstream.core.data import Array, Carry, Rollout
from millstream.core.spec import Box, Discrete, EnvSpec, Space

VECTOR = "vector"
"""The input that holds everything which is not an image."""
_LIMIT = 10.0


class Features:
    """How one spec's observations are read. `images` keeps them whole for convolutions; otherwise they are numbers."""

    def __init__(self, spec: EnvSpec, images: bool = False):
        self.spec, self.stack = spec, spec.stack
        self.images = {n: s for n, s in spec.observations.items() if images and isinstance(s, Box) and s.is_image}
        self.flat = {n: s for n, s in spec.observations.items() if n not in self.images}
        self.width = self.stack * sum(space.width for space in self.flat.values())
        self.normal = [n for n, s in self.flat.items() if isinstance(s, Box) and not s.is_image]
        (only,) = self.flat.values() if len(self.flat) == 1 else (None,)
        self._plain = isinstance(only, Box) and only.dtype == "float32" and not self.images

    def carry(self, slots: int) -> Carry:
        """The frames before the first: none yet."""
        if self.stack == 1:
            return {}
        return {
            f"frames/{name}": np.zeros((slots, self.stack - 1, *space.shape), space.dtype)
            for name, space in self.spec.observations.items()
        }

    def observe(
        self, observations: Mapping[str, Array], carry: Carry, first: Array, statistics: Mapping[str, Array]
    ) -> tuple[dict[str, Array], Carry]:
        """One step's inputs [B, ...], and the frames to remember."""
        if self.stack > 1:
            observations = {name: _push(carry[f"frames/{name}"], now, first) for name, now in observations.items()}
            carry = {f"frames/{name}": stacked[:, 1:] for name, stacked in observations.items()}
        return self.inputs(observations, statistics), carry

    def unroll(self, rollout: Rollout) -> Mapping[str, Array]:
        """Observations [T+1, B, ...] with their stacks rebuilt."""
        if self.stack == 1:
            return rollout.observations
        stacks = {}
        for name, frames in rollout.observations.items():
            whole = np.empty((*frames.shape[:2], self.stack, *frames.shape[2:]), frames.dtype)
            before = rollout.carry[f"frames/{name}"]
            for t, now in enumerate(frames):
                whole[t] = _push(before, now, rollout.first[t])
                before = whole[t][:, 1:]
            stacks[name] = whole
        return stacks

    def finals(self, rollout: Rollout, stacked: Mapping[str, Array]) -> Mapping[str, Array]:
        """The last observations [K, ...] of the episodes that ended, stacked like the others."""
        if self.stack == 1:
            return rollout.finals
        t, slot = rollout.final_at[:, 0], rollout.final_at[:, 1]
        return {
            name: np.concatenate([stacked[name][t, slot][:, 1:], last[:, None]], axis=1)
            for name, last in rollout.finals.items()
        }

    def ends(self, rollout: Rollout) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
        """Of picked windows the observations [B, ...] of the first step, and those after the last step that counts."""
        stacked = self.unroll(rollout)
        now = {name: array[0] for name, array in stacked.items()}
        if self.stack == 1 or rollout.steps == 1:
            return now, {name: array[-1] for name, array in stacked.items()}
        last = np.maximum(rollout.valid.sum(axis=0), 1) - 1
        after = {}
        for name, array in stacked.items():
            frames = array[last, np.arange(rollout.slots)]
            after[name] = np.concatenate([frames[:, 1:], rollout.observations[name][-1][:, None]], axis=1)
        return now, after

    def inputs(self, observations: Mapping[str, Array], statistics: Mapping[str, Array]) -> dict[str, Array]:
        """Inputs by name; the leading dimensions stay as they are."""
        found: dict[str, Array] = {}
        parts = [self._numbers(name, space, observations[name], statistics) for name, space in self.flat.items()]
        if parts:
            found[VECTOR] = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
        for name in self.images:
            found[f"image/{name}"] = observations[name]
        return found

    def _numbers(self, name: str, space: Space, raw: Array, statistics: Mapping[str, Array]) -> Array:
        inner = len(space.shape) + (self.stack > 1)
        lead = raw.shape[: raw.ndim - inner]
        if isinstance(space, Box):
            if f"mean/{name}" in statistics:
                raw = np.clip((raw - statistics[f"mean/{name}"]) * statistics[f"scale/{name}"], -_LIMIT, _LIMIT)
            elif space.is_image:
                raw = raw * np.float32(1 / 255)
            elif self._plain and inner == 1:
                return raw
            return raw.astype(np.float32, copy=False).reshape(*lead, -1)
        sizes = (space.n,) if isinstance(space, Discrete) else space.nvec
        values = raw.reshape(*lead, -1, len(sizes))
        hot = [values[..., index, None] == np.arange(n) for index, n in enumerate(sizes)]
        return np.concatenate(hot, axis=-1).astype(np.float32).reshape(*lead, -1)


def _push(before: Array, now: Array, first: Array) -> Array:
    """[B, k-1, ...] and [B, ...] -> [B, k, ...]; where an episode opens, its first frame fills the stack."""
    inner = (1,) * (now.ndim - 1)
    opened = np.where(first.reshape(-1, 1, *inner), now[:, None], before)
    return np.concatenate([opened, now[:, None]], axis=1)
