"""Single Gymnasium environments made into a vector: in this process, or one process a slot."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from millstream.core.errors import EnvError, MillError
from millstream.envs.gymnasium import summary
from millstream.envs.spaces import Leaf, leaves

Maker = Callable[[], Any]


def vectorise(maker: Maker, slots: int, mode: str) -> Any:
    """A Gymnasium vector that resets in the same step, so that no step is wasted; mode is `sync` or `process`."""
    from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

    kind = AsyncVectorEnv if mode == "process" else SyncVectorEnv
    makers = [functools.partial(_make_slot, maker, slot) for slot in range(slots)]
    # Observations are copied by the reader, once is enough.
    return kind(makers, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)


def _make_slot(maker: Maker, slot: int) -> Any:
    return _guard_class()(maker(), slot)


@functools.cache
def _guard_class() -> Any:
    """The wrapper around every single environment, made when Gymnasium is first needed."""
    from gymnasium import Wrapper
    from gymnasium.spaces import Discrete

    class Guard(Wrapper):
        """Says which slot broke, and catches what a vector would quietly bend into shape."""

        def __init__(self, env: Any, slot: int) -> None:
            super().__init__(env)
            self._slot = slot
            shown, mask = leaves(env.observation_space)
            self._parts = [*shown, mask] if mask else shown
            self._counts = isinstance(env.action_space, Discrete)

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            """Reset, and look at what came."""
            try:
                observation, info = self.env.reset(seed=seed, options=options)
            except MillError:
                raise
            except Exception as error:
                raise EnvError(f"slot {self._slot} raised in reset: {summary(error)}") from error
            complain(self._slot, observation_fault(self._parts, observation))
            return observation, info

        def step(self, action: Any) -> Any:
            """Step, and look at what came."""
            try:
                # a plain int: spaces take ten times as long to recognise one of NumPy's
                chosen = int(action) if self._counts else action
                observation, reward, terminated, truncated, info = self.env.step(chosen)
            except MillError:
                raise
            except Exception as error:
                raise EnvError(f"slot {self._slot} raised in step: {summary(error)}") from error
            fault = observation_fault(self._parts, observation) or outcome_fault(reward, terminated, truncated)
            complain(self._slot, fault)
            if terminated or truncated:
                # The vector resets before it hands the last observation on, and many environments show one array.
                observation = copy.deepcopy(observation)
            return observation, reward, terminated, truncated, info

    return Guard


def complain(slot: int, fault: str | None) -> None:
    """Raise what is wrong with a slot, if anything is."""
    if fault:
        raise EnvError(f"slot {slot}: {fault}")


def observation_fault(parts: Sequence[Leaf], observation: Any) -> str | None:
    """How an observation of one environment differs from what its space promises."""
    for part in parts:
        try:
            array = np.asarray(part.find(observation))
        except (KeyError, IndexError, TypeError):
            return f"the observation has no {part.name!r}, its space promises one"
        if fault := part.fault(array):
            return fault
    return None


def outcome_fault(reward: Any, terminated: Any, truncated: Any) -> str | None:
    """What is wrong with the rest of a step, in words."""
    if not isinstance(reward, float | int | np.number | np.bool_) and not (
        isinstance(reward, np.ndarray) and reward.shape == () and reward.dtype.kind in "fiub"
    ):
        return f"the reward is {reward!r} ({type(reward).__name__}), not a number"
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_):
            return f"{name} is {flag!r} ({type(flag).__name__}), not a bool"
    return None
