"""EnvPool's vectors, which run in C++ threads, behind the same door as Gymnasium's.

EnvPool 1.2 resets in the step after an episode ended (`NextStep`), and takes its seed only when it
is made: so the pool is made anew at each reset.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from millstream.core.data import Array
from millstream.core.errors import ConfigError, MissingPart, UnknownName
from millstream.envs.atari import Unstacked
from millstream.envs.gymnasium import NEXT, Gymnasium, summary

PREFIX = "envpool:"


def envpool(id: str, slots: int, args: Mapping[str, Any], stack: int | None = None, render: bool = False) -> Gymnasium:
    """An environment of EnvPool, by its name there; Atari frames come unstacked."""
    pool = Pool(id, slots, args, render)
    framed = "stack_num" in pool.config and len(pool.single_observation_space.shape) >= 3
    return Gymnasium(
        Unstacked(pool) if framed else pool,
        PREFIX + id,
        stack=stack or (pool.config["stack_num"] if framed else 1),
        limit=pool.config.get("max_episode_steps"),
        threshold=pool.config.get("reward_threshold"),
        probe=False,
    )


class Pool:
    """EnvPool with the face of a Gymnasium vector, and a seed at reset."""

    metadata: Mapping[str, Any] = {"autoreset_mode": NEXT}

    def __init__(self, id: str, slots: int, args: Mapping[str, Any], render: bool = False) -> None:
        self._library = known(id)
        self._id = id
        self.num_envs = slots
        self.render_mode = "rgb_array" if render else None
        self._pool: Any = None
        try:
            with warnings.catch_warnings():  # about the precision of bounds, which nobody can act upon
                warnings.simplefilter("ignore")
                self.config = dict(self._library.make_spec(id, **args).config._asdict())
                self._args = {**args, "stack_num": 1} if "stack_num" in self.config else dict(args)
                spec = self._library.make_spec(id, **self._args)
                self.single_observation_space = spec.gymnasium_observation_space
                self.single_action_space = spec.gymnasium_action_space
        except Exception as error:
            raise ConfigError(f"{PREFIX}{id} cannot be made with {dict(args)}: {summary(error)}") from error

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        """Make the pool with this seed and open every episode."""
        self.close()
        picture = {"render_mode": self.render_mode} if self.render_mode else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._pool = self._library.make(
                self._id, env_type="gymnasium", num_envs=self.num_envs, seed=seed, **self._args, **picture
            )
            observations, info = self._pool.reset()
        return observations, info

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Step every environment of the pool; answers stand in the order of the slots."""
        answer: tuple[Any, Array, Array, Array, dict[str, Any]] = self._pool.step(actions)
        return answer

    def render(self) -> Array:
        """Every slot's picture."""
        frames: Array = np.asarray(self._pool.render(np.arange(self.num_envs, dtype=np.int32)))
        return frames

    def close(self) -> None:
        """Let go of the threads."""
        if self._pool is not None:
            self._pool.close()
        self._pool = None


def known(id: str) -> Any:
    """EnvPool itself, if it has an environment of that name."""
    library = _library()
    if id not in library.list_all_envs():
        raise UnknownName.of("EnvPool environment", id, library.list_all_envs())
    return library


def _library() -> Any:
    try:
        import envpool
    except ImportError as error:
        raise MissingPart.of("EnvPool", "envpool") from error
    return envpool
