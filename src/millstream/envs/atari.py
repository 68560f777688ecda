"""Atari games with the customary preprocessing: 84 by 84 grey frames, four emulator frames an action.

Frames travel unstacked (the spec says how many a policy sees at once). The Arcade Learning
Environment's own vector does all of this in C++ threads and is taken where it can be; single
environments with the same preprocessing serve wrappers, processes and pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from millstream.core.data import Array
from millstream.core.errors import ConfigError, MissingPart

STACK = 4
"""How many frames a policy sees at once, unless told otherwise."""


@dataclass(frozen=True)
class Preprocessing:
    """What is done to a game before a policy sees it; each can be set among the environment's arguments."""

    noop_max: int = 30
    """At most how many idle actions open an episode."""
    frame_skip: int = 4
    """How many emulator frames an action lasts; the last two are merged by their maximum."""
    screen: int = 84
    """The side of a frame."""
    grayscale: bool = True
    """Grey frames [84, 84]; otherwise colours [84, 84, 3]."""
    terminal_on_life_loss: bool = False
    """Whether the loss of a life ends the episode."""
    clip_rewards: bool = False
    """Whether rewards become -1, 0 or 1."""
    fire_reset: bool = True
    """Whether FIRE is pressed to start games that wait for it."""


def split(args: Mapping[str, Any]) -> tuple[Preprocessing, dict[str, Any]]:
    """The preprocessing among the arguments, and what is left for the game."""
    known = {field.name: field.type for field in fields(Preprocessing)}
    ours = {name: value for name, value in args.items() if name in known}
    for name, value in ours.items():
        if isinstance(value, bool) != (known[name] == "bool") or not isinstance(value, int):
            raise ConfigError(f"environment argument {name} must be {known[name]}, got {value!r}")
    return Preprocessing(**ours), {name: value for name, value in args.items() if name not in known}


def register() -> None:
    """Let Gymnasium know the Atari games."""
    try:
        import ale_py
        import gymnasium
    except ImportError as error:
        raise MissingPart.of("Atari (ale-py)", "atari") from error
    gymnasium.register_envs(ale_py)


def native(id: str, slots: int, args: Mapping[str, Any]) -> Any:
    """The games as one vector of C++ threads."""
    import gymnasium

    how, rest = split(args)
    vector = gymnasium.make_vec(
        id,
        slots,
        vectorization_mode="vector_entry_point",
        stack_num=1,
        noop_max=how.noop_max,
        frameskip=how.frame_skip,
        img_height=how.screen,
        img_width=how.screen,
        grayscale=how.grayscale,
        episodic_life=how.terminal_on_life_loss,
        reward_clipping=how.clip_rewards,
        use_fire_reset=how.fire_reset,
        autoreset_mode="NextStep",  # resets in threads, beside the other games; SameStep would hold all of them up
        **rest,
    )
    return Unstacked(vector)


def maker(id: str, args: Mapping[str, Any], render: bool) -> Callable[[], Any]:
    """How to make one game with the same preprocessing."""
    how, rest = split(args)

    def make() -> Any:
        import gymnasium
        from gymnasium.wrappers import AtariPreprocessing, TransformReward

        register()
        picture = {"render_mode": "rgb_array"} if render else {}
        env = gymnasium.make(id, disable_env_checker=True, **{**rest, **picture, "frameskip": 1})
        env = AtariPreprocessing(
            env,
            noop_max=how.noop_max,
            frame_skip=how.frame_skip,
            screen_size=how.screen,
            terminal_on_life_loss=how.terminal_on_life_loss,
            grayscale_obs=how.grayscale,
        )
        if how.fire_reset and env.unwrapped.get_action_meanings()[1:2] == ["FIRE"]:
            env = _fire_reset(env)
        return TransformReward(env, np.sign) if how.clip_rewards else env

    return make


def _fire_reset(env: Any) -> Any:
    from gymnasium import Wrapper

    class FireReset(Wrapper):
        """Presses FIRE once after a reset."""

        def reset(self, **kwargs: Any) -> Any:
            """Reset and start the ball."""
            self.env.reset(**kwargs)
            observation, _, terminated, truncated, info = self.env.step(1)
            return self.env.reset(**kwargs) if terminated or truncated else (observation, info)

    return FireReset(env)


class Unstacked:
    """A vector whose observations lead with a stack of one frame, without that dimension."""

    def __init__(self, vector: Any) -> None:
        from gymnasium.spaces import Box

        self._vector = vector
        self.num_envs = vector.num_envs
        self.metadata = vector.metadata
        self.render_mode = getattr(vector, "render_mode", None)
        self.single_action_space = vector.single_action_space
        stacked = vector.single_observation_space
        if stacked.shape[0] != 1:
            raise ConfigError(f"frames travel unstacked, got a stack of {stacked.shape[0]}; set stack instead")
        self.single_observation_space = Box(0, 255, stacked.shape[1:], stacked.dtype)

    def reset(self, **kwargs: Any) -> tuple[Array, dict[str, Any]]:
        """Reset, and drop the dimension."""
        observations, info = self._vector.reset(**kwargs)
        return observations[:, 0], info

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step, and drop the dimension."""
        observations, rewards, terminated, truncated, info = self._vector.step(actions)
        return observations[:, 0], rewards, terminated, truncated, info

    def render(self) -> Any:
        """What the vector draws."""
        return self._vector.render()

    def close(self) -> None:
        """Let go of the games."""
        self._vector.close()
