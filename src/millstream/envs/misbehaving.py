"""Gymnasium environments made for tests: one that never terminates, and those that break a promise."""

from __future__ import annotations

from typing import Any

import numpy as np

from millstream.core.data import Array
from millstream.core.errors import ConfigError

KINDS = ("crash", "nan", "inf", "shape", "dtype", "reward", "flag", "reset")
ROUNDS = 10


def endless(num_envs: int, autoreset_mode: str) -> Any:
    """A vector that is truncated after ten steps; see `millstream.testing.EndlessEnv`."""
    from gymnasium.spaces import Box, Discrete
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space

    class Endless(VectorEnv):
        """Reward 1 for ever."""

        def __init__(self) -> None:
            self.num_envs = num_envs
            self.mode = AutoresetMode(autoreset_mode)
            self.metadata = {"autoreset_mode": self.mode}
            self.single_observation_space = Box(0.0, 1.0, (1,), np.float32)
            self.single_action_space = Discrete(2)
            self.observation_space = batch_space(self.single_observation_space, num_envs)
            self.action_space = batch_space(self.single_action_space, num_envs)
            self.ages = np.zeros(num_envs, np.int64)
            self.over = np.zeros(num_envs, bool)

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            """All, or those in `reset_mask`. A seed opens slot i at age i % 10, so that ends do not coincide."""
            chosen = (options or {}).get("reset_mask", np.ones(num_envs, bool))
            self.ages[chosen] = 0 if seed is None else (np.arange(num_envs) % ROUNDS)[chosen]
            self.over[chosen] = False
            return self._seen(), {}

        def step(self, actions: Array) -> Any:
            """One step older."""
            if self.mode == AutoresetMode.DISABLED and self.over.any():
                raise RuntimeError("stepped after the end")
            opening = self.over.copy()
            self.ages[:] = np.where(opening, 0, self.ages + 1)
            rewards = np.where(opening, 0.0, 1.0)
            self.over = self.ages >= ROUNDS
            truncated, info = self.over.copy(), {}
            if self.mode == AutoresetMode.SAME_STEP and truncated.any():
                finals = np.full(num_envs, None, object)
                for slot in truncated.nonzero()[0]:
                    finals[slot] = self._seen()[slot]
                info = {"final_obs": finals, "_final_obs": truncated}
                self.ages[truncated] = 0
                self.over[:] = False
            return self._seen(), rewards, np.zeros(num_envs, bool), truncated, info

        def _seen(self) -> Array:
            return (self.ages / ROUNDS).astype(np.float32)[:, None]

    return Endless()


def broken(kind: str, after: int) -> Any:
    """An environment that breaks one promise; see `millstream.testing.Broken`."""
    from gymnasium import Env
    from gymnasium.spaces import Box, Discrete

    if kind not in KINDS:
        raise ConfigError(f"an environment breaks by one of {', '.join(KINDS)}, got {kind!r}")

    class BrokenEnv(Env):
        """Counts its steps, then misbehaves."""

        observation_space = Box(-1.0, 1.0, (2,), np.float32)
        action_space = Discrete(2)

        def __init__(self) -> None:
            self.age = 0

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            """Behaves, unless it is this that breaks."""
            super().reset(seed=seed)
            self.age = 0
            if kind == "reset":
                raise RuntimeError("the level file is missing")
            return np.zeros(2, np.float32), {}

        def step(self, action: Any) -> Any:
            """Behaves until it is old enough."""
            self.age += 1
            shown: Any = np.zeros(2, np.float32)
            reward: Any = 0.0
            terminated: Any = False
            if self.age > after:
                if kind == "crash":
                    raise ValueError("the physics exploded")
                shown = {
                    "nan": np.array([0.0, np.nan], np.float32),
                    "inf": np.array([np.inf, 0.0], np.float32),
                    "shape": np.zeros(3, np.float32),
                    "dtype": np.array(["a", "b"]),
                }.get(kind, shown)
                reward = "a lot" if kind == "reward" else reward
                terminated = 0 if kind == "flag" else terminated
            return shown, reward, terminated, False, {}

    return BrokenEnv()
