"""Gymnasium's vector environments behind the `Env` port, whichever way they reset themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from millstream.core.data import Array, Step
from millstream.core.errors import EnvError, MillError
from millstream.core.spec import MASK, EnvSpec
from millstream.envs.spaces import Chooser, Reader, finite, leaves, mask_array, masks_of

NEXT, SAME, DISABLED = "NextStep", "SameStep", "Disabled"
"""When an ended slot opens its next episode: in the step after, in the same step, or when it is told to."""


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
        fps: int | None = None,
        probe: bool = True,
    ) -> None:
        self._vector = vector
        self.slots = int(vector.num_envs)
        self._mode = autoreset(vector, id)
        parts, self._mask_leaf = leaves(vector.single_observation_space)
        self._reader = Reader(parts, self.slots)
        self._chooser = Chooser(vector.single_action_space, self.slots)
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
            fps=int(fps or (getattr(vector, "metadata", None) or {}).get("render_fps") or 30),
        )
        if self._mask_leaf is not None or (probe and MASK in self._guard(vector.reset, seed=0)[1]):
            self._promise_masks()

    def reset(self, seed: int) -> Step:
        """Open an episode in every slot."""
        observations, infos = self._guard(self._vector.reset, seed=int(seed) % 2**31)
        self._opened = True
        self._pending[:] = False
        self._reader.read(observations)
        self._read_masks(observations, infos)
        nothing, everything = np.zeros(self.slots, bool), np.ones(self.slots, bool)
        return self._answer(nothing, nothing, everything, everything, np.zeros(0, np.int64), None)

    def step(self, actions: Array) -> Step:
        """Take one action a slot."""
        if not self._opened:
            raise EnvError(f"{self.spec.id} was stepped before its first reset")
        chosen = self._chooser.translate(actions)
        observations, rewards, terminated, truncated, infos = self._guard(self._vector.step, chosen)
        terminated, truncated = self._flags(terminated, "terminated"), self._flags(truncated, "truncated")
        self._reader.read(observations)
        self._read_rewards(rewards)
        if self._mode == NEXT:
            return self._next_step(observations, terminated, truncated, infos)
        done = terminated | truncated
        ended = done.nonzero()[0]
        finals = None
        if ended.size and self._mode == SAME:
            finals = self._reader.pick(self._final_observations(infos, ended))
        elif ended.size:
            finals = self._reader.at(ended)
            observations, infos = self._reopen(done, observations, infos)
        self._read_masks(observations, infos, done)
        return self._answer(terminated, truncated, np.ones(self.slots, bool), done, ended, finals)

    def render(self, slot: int = 0) -> Array | None:
        """One slot as the environment itself draws it; None when it was made without pictures."""
        if getattr(self._vector, "render_mode", None) is None:
            return None
        if hasattr(self._vector, "envs"):
            return _picture(self._guard(self._vector.envs[slot].render))
        frames = self._guard(self._vector.render)
        return None if frames is None else _picture(frames[slot])

    def close(self) -> None:
        """Let go of the vector and of its processes."""
        self._vector.close()

    def _next_step(self, observations: Any, terminated: Array, truncated: Array, infos: Mapping[str, Any]) -> Step:
        opening = self._pending
        valid = ~opening
        terminated, truncated = terminated & valid, truncated & valid
        done = terminated | truncated
        self._rewards[opening] = 0.0
        self._pending = done
        ended = done.nonzero()[0]
        self._read_masks(observations, infos, done)
        return self._answer(terminated, truncated, valid, opening, ended, self._reader.at(ended))

    def _reopen(self, done: Array, observations: Any, infos: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
        fresh, fresh_infos = self._guard(self._vector.reset, options={"reset_mask": done.copy()})
        self._reader.read(fresh, done)
        if not self.spec.masked:
            return fresh, fresh_infos
        # A masked reset speaks of the slots that it reset alone; the others keep the masks of the step.
        self._read_masks(observations, infos, done)
        kept, assert_masks = self._masks, self._raw_masks(fresh, fresh_infos, done)
        assert kept is not None
        kept[done] = assert_masks[done]
        return observations, {MASK: kept}

    def _final_observations(self, infos: Mapping[str, Any], ended: Array) -> list[Any]:
        finals = infos.get("final_obs")
        if finals is None:
            raise EnvError(f"{self.spec.id} resets in the same step but gives no 'final_obs' in its info")
        return [_nth(finals, slot) for slot in ended]

    def _read_rewards(self, rewards: Any) -> None:
        array = np.asarray(rewards)
        if array.shape != (self.slots,) or array.dtype.kind not in "fiub":
            raise EnvError(f"rewards are {array.dtype} of shape {array.shape}, expected {self.slots} numbers")
        self._rewards[:] = array
        if not finite(self._rewards):
            slot = int(np.argmin(np.isfinite(self._rewards)))
            raise EnvError(f"the reward of slot {slot} is {array[slot]}; check the environment's arithmetic")

    def _flags(self, given: Any, name: str) -> Array:
        array = np.asarray(given)
        if array.shape != (self.slots,) or array.dtype != bool:
            raise EnvError(f"{name} is {array.dtype} of shape {array.shape}, expected {self.slots} booleans")
        return array

    def _promise_masks(self) -> None:
        from dataclasses import replace

        self.spec = replace(self.spec, masked=True)
        if not self.spec.mask_width:
            raise EnvError(f"{self.spec.id} gives an {MASK!r} but its actions are continuous")

    def _read_masks(self, observations: Any, infos: Mapping[str, Any], done: Array | None = None) -> None:
        if not self.spec.masked:
            return
        masks = self._raw_masks(observations, infos)
        stuck = ~masks.any(axis=1)
        if stuck.any():
            if done is None or (stuck & ~done).any():
                raise EnvError(f"{MASK} of slot {int(np.argmax(stuck))} allows no action")
            masks[stuck] = True  # an ended episode has nothing to choose, and what is chosen there is ignored
        self._masks = masks

    def _raw_masks(self, observations: Any, infos: Mapping[str, Any], rows: Array | None = None) -> Array:
        if self._mask_leaf is not None:
            return mask_array(self._mask_leaf.find(observations), self.slots, self.spec.mask_width)
        if rows is not None:
            infos = {MASK: infos.get(MASK)} if np.all(infos.get(f"_{MASK}", rows)[rows]) else {}
        return masks_of(infos, self.slots, self.spec.mask_width)

    def _guard(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except MillError:
            raise
        except Exception as error:
            raise EnvError(f"{self.spec_id} raised {type(error).__name__}: {first_line(error)}") from error

    @property
    def spec_id(self) -> str:
        """The environment's name, also while it is being built."""
        return self.spec.id if hasattr(self, "spec") else type(self._vector).__name__

    def _answer(
        self,
        terminated: Array,
        truncated: Array,
        valid: Array,
        first: Array,
        ended: Array,
        finals: Mapping[str, Array] | None,
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
