"""Gymnasium's vector environments behind the `Env` port, whichever way they reset themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from millstream.core.data import Array, Step
from millstream.core.errors import EnvError, MillError
from millstream.core.spec import MASK, EnvSpec
from millstream.envs.host import on_host
from millstream.envs.processes import vanished
from millstream.envs.spaces import Chooser, Reader, finite, leaves, legal

NEXT, SAME, DISABLED = "NextStep", "SameStep", "Disabled"
"""When an ended slot opens its next episode: in the step after, in the same step, or when it is told to."""
NOBODY = np.zeros(0, np.int64)


class Gymnasium:
    """A Gymnasium `VectorEnv` as an `Env`.

    The vector says in `metadata["autoreset_mode"]` when it resets. Where that takes a step of its own,
    that step is not valid; where it does not reset at all, it is told to in the step that ended.
    """

    def __init__(
        self,
        vector: Any,
        id: str,
        stack: int = 1,
        limit: int | None = None,
        threshold: float | None = None,
        probe: bool = True,
    ) -> None:
        """Take over a vector; `probe` resets it once to see whether its info carries action masks."""
        self._id = id
        self._vector = vector
        self.slots = int(vector.num_envs)
        self._mode = autoreset(vector, id)
        parts, self._mask_leaf = leaves(vector.single_observation_space)
        self._reader = Reader(parts, self.slots)
        self._chooser = Chooser(vector.single_action_space, self.slots)
        self._all = np.ones(self.slots, bool)
        self._pending = np.zeros(self.slots, bool)
        self._rewards = np.zeros(self.slots, np.float32)
        self._masks: Array | None = None
        self._opened = False
        self.spec = EnvSpec(
            id=id,
            observations={part.name: part.space for part in parts},
            action=self._chooser.space,
            stack=stack,
            max_episode_steps=limit,
            reward_threshold=threshold,
            fps=int((getattr(vector, "metadata", None) or {}).get("render_fps") or 30),
        )
        if self._mask_leaf is not None or (probe and MASK in self._call(vector.reset, seed=0)[1]):
            self.spec = replace(self.spec, masked=True)
            if not self.spec.mask_width:
                raise EnvError(f"{id} gives an {MASK!r} but its actions are continuous")

    def reset(self, seed: int) -> Step:
        """Open an episode in every slot."""
        observations, infos = self._call(self._vector.reset, seed=spread(seed))
        self._opened = True
        self._pending = np.zeros(self.slots, bool)
        self._call(self._reader.read, observations)
        self._read_masks(observations, infos, ended=~self._all)
        return self._answer(~self._all, ~self._all, self._all, self._all, NOBODY)

    def step(self, actions: Array) -> Step:
        """Take one action a slot."""
        if not self._opened:
            raise EnvError(f"{self._id} was stepped before its first reset")
        chosen = self._chooser.translate(actions)
        observations, rewards, terminated, truncated, infos = self._call(self._vector.step, chosen)
        terminated, truncated = self._flags(terminated, "terminated"), self._flags(truncated, "truncated")
        self._call(self._reader.read, observations)
        self._read_rewards(rewards)
        if self._mode == NEXT:
            return self._next_step(observations, terminated, truncated, infos)
        done = terminated | truncated
        ended = done.nonzero()[0]
        self._read_masks(observations, infos, done)
        finals = None
        if ended.size and self._mode == SAME:
            finals = self._call(self._reader.pick, self._final_observations(infos, ended))
        elif ended.size:
            finals = self._reader.at(ended)
            self._reopen(done)
        return self._answer(terminated, truncated, self._all, done, ended, finals)

    def render(self, slot: int = 0) -> Array | None:
        """One slot as the environment itself draws it; None when it was made without pictures."""
        if getattr(self._vector, "render_mode", None) is None:
            return None
        if hasattr(self._vector, "envs"):
            return _picture(self._call(self._vector.envs[slot].render))
        frames = self._call(self._vector.render)
        return None if frames is None else _picture(frames[slot])

    def close(self) -> None:
        """Let go of the vector and of its processes."""
        self._vector.close()

    def _next_step(self, observations: Any, terminated: Array, truncated: Array, infos: Mapping[str, Any]) -> Step:
        opening, valid = self._pending, ~self._pending
        terminated, truncated = terminated & valid, truncated & valid
        self._pending = done = terminated | truncated
        self._rewards[opening] = 0.0
        self._read_masks(observations, infos, done)
        return self._answer(terminated, truncated, valid, opening, done.nonzero()[0])

    def _reopen(self, done: Array) -> None:
        observations, infos = self._call(self._vector.reset, options={"reset_mask": done.copy()})
        self._call(self._reader.read, observations, done)
        if self._masks is not None:
            self._masks[done] = self._legal(observations, infos, done)[done]

    def _final_observations(self, infos: Mapping[str, Any], ended: Array) -> list[Any]:
        finals = infos.get("final_obs")
        if finals is None:
            raise EnvError(f"{self._id} resets in the same step but gives no 'final_obs' in its info")
        return [_nth(finals, slot) for slot in ended]

    def _read_rewards(self, rewards: Any) -> None:
        array = np.asarray(rewards)
        if array.shape != (self.slots,) or array.dtype.kind not in "fiub":
            raise EnvError(
                f"{self._id}: rewards are {array.dtype} of shape {array.shape}, expected {self.slots} numbers"
            )
        self._rewards[:] = array
        if not finite(self._rewards):
            slot = int(np.argmin(np.isfinite(self._rewards)))
            raise EnvError(
                f"{self._id}: the reward of slot {slot} is {array[slot]}; check the environment's arithmetic"
            )

    def _flags(self, given: Any, name: str) -> Array:
        array = np.asarray(given)
        if array.shape != (self.slots,) or array.dtype != bool:
            raise EnvError(
                f"{self._id}: {name} is {array.dtype} of shape {array.shape}, expected {self.slots} booleans"
            )
        return array

    def _read_masks(self, observations: Any, infos: Mapping[str, Any], ended: Array) -> None:
        if not self.spec.masked:
            return
        masks = self._legal(observations, infos, self._all)
        stuck = ~masks.any(axis=1)
        if (stuck & ~ended).any():
            raise EnvError(f"{self._id}: {MASK} of slot {int(np.argmax(stuck & ~ended))} allows no action")
        masks[stuck] = True  # an ended episode has nothing to choose, and what is chosen there is ignored
        self._masks = masks

    def _legal(self, observations: Any, infos: Mapping[str, Any], rows: Array) -> Array:
        if self._mask_leaf is not None:
            return legal(self._mask_leaf.find(observations), rows, self.spec.mask_width)
        present = np.asarray(infos.get(f"_{MASK}", self._all)) if MASK in infos else ~self._all
        if not present[rows].all():
            raise EnvError(f"{self._id}: the info of slot {int(np.argmax(rows & ~present))} lacks its {MASK!r}")
        return legal(infos[MASK], rows, self.spec.mask_width)

    def _call(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return on_host(call(*args, **kwargs))
        except MillError as error:
            raise type(error)(f"{self._id}: {error}") from error
        except (EOFError, ConnectionError) as error:
            raise vanished(self._vector, self._id, error) from error
        except Exception as error:
            raise EnvError(f"{self._id} raised {summary(error)}") from error

    def _answer(
        self,
        terminated: Array,
        truncated: Array,
        valid: Array,
        first: Array,
        ended: Array,
        finals: Mapping[str, Array] | None = None,
    ) -> Step:
        return Step(
            observations=self._reader.arrays,
            rewards=self._rewards,
            terminated=terminated,
            truncated=truncated,
            valid=valid,
            first=first,
            ended=ended,
            finals=self._reader.at(ended) if finals is None else finals,
            masks=self._masks,
        )


def autoreset(vector: Any, id: str) -> str:
    """Which of the three ways to reset a vector declares."""
    declared = (getattr(vector, "metadata", None) or {}).get("autoreset_mode")
    mode = getattr(declared, "value", declared)
    if mode not in (NEXT, SAME, DISABLED):
        raise EnvError(
            f'{id} does not say how its vector resets: metadata["autoreset_mode"] is {declared!r}; '
            f"set it to one of gymnasium.vector.AutoresetMode"
        )
    return str(mode)


def spread(seed: int) -> int:
    """A seed far from those of its neighbours: vectors count up from it, one a slot."""
    return int(np.random.SeedSequence(int(seed)).generate_state(1)[0] >> 2)


def summary(error: BaseException) -> str:
    """An exception as one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _nth(batch: Any, slot: int) -> Any:
    """One slot of observations that are batched, or that are already one object a slot."""
    if isinstance(batch, Mapping):
        return {key: _nth(part, slot) for key, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_nth(part, slot) for part in batch)
    return batch[slot]


def _picture(frame: Any) -> Array | None:
    array = np.asarray(frame)
    return array.astype(np.uint8, copy=False) if array.ndim == 3 and array.shape[-1] == 3 else None
