"""What is wrong with an environment, in plain words: run it on your own before you train."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from millstream.core.errors import MillError
from millstream.envs.gymnasium import summary
from millstream.envs.promises import slot_findings
from millstream.envs.spaces import Leaf, choices, leaves
from millstream.envs.vector import observation_fault, outcome_fault

STEPS = 1000
"""How many random steps are taken."""
NOTE = "note: "
"""What a finding begins with that is worth knowing, but not wrong."""


def check(environment: Any, steps: int = STEPS, seed: int = 0) -> list[str]:
    """Findings about a `gymnasium.Env`, a millstream `Env`, a factory of one, or a name; nothing: all is well.

    A finding that begins with `note:` is worth knowing but breaks no promise.
    """
    try:
        env = _made(environment)
    except MillError as error:
        return [f"it cannot be made: {error}"]
    except Exception as error:
        return [f"it cannot be made: {summary(error)}"]
    try:
        if hasattr(env, "slots"):
            return slot_findings(env, steps, seed)
        return _Examination(env, steps, seed).findings(fresh=env is not environment)
    finally:
        env.close()


def _made(environment: Any) -> Any:
    if isinstance(environment, str):
        return _named(environment)
    if isinstance(environment, type) or (callable(environment) and not hasattr(environment, "step")):
        return environment(slots=2) if "slots" in _parameters(environment) else environment()
    return environment


def _named(id: str) -> Any:
    """A single environment where the name has one, otherwise two slots."""
    from millstream.envs.registry import BUILT_IN, PREFIX, find, make

    if id in BUILT_IN or id.startswith(PREFIX):
        return make(id, 2)
    if ":" in id:
        factory = find(id)
        single = factory is not None and not {"slots", "num_envs"} & set(_parameters(factory))
        return factory() if factory and single else make(id, 2)
    import gymnasium

    make(id, 1).close()  # says in our words what is wrong with the name
    return gymnasium.make(id, disable_env_checker=True)


def _parameters(factory: Callable[..., Any]) -> Sequence[str]:
    try:
        return list(inspect.signature(factory).parameters)
    except (TypeError, ValueError):
        return []


class _Examination:
    """One pass over one environment."""

    def __init__(self, env: Any, steps: int, seed: int) -> None:
        self.env, self.steps, self.seed = env, steps, seed
        self.found: list[str] = []
        self.parts: list[Leaf] = []

    def findings(self, fresh: bool) -> list[str]:
        """Everything, in the order in which a person would want to mend it; `fresh` if it was never reset before."""
        early = fresh and self._early_step()
        if self._spaces() and self._opening() and self._episodes() and self._repeats():
            self._late_step()
            if early and not self.found:
                self.say(f"{NOTE}it can be stepped before its first reset; raise an error there")
        return self.found

    def say(self, finding: str) -> bool:
        """Add a finding, once; False, for callers that stop there."""
        if finding not in self.found:
            self.found.append(finding)
        return False

    def _early_step(self) -> bool:
        """Whether it answers to a step before its first reset."""
        try:
            self.env.step(self.env.action_space.sample())
        except Exception:
            return False  # to refuse is right
        return True

    def _spaces(self) -> bool:
        for name in ("observation_space", "action_space"):
            if getattr(self.env, name, None) is None:
                return self.say(f"it has no {name}; set one in __init__")
        try:
            shown, mask = leaves(self.env.observation_space)
            self.parts = [*shown, mask] if mask else shown
            choices(self.env.action_space)
        except MillError as error:
            return self.say(str(error))
        edges = [getattr(self.env.action_space, name, 0.0) for name in ("low", "high")]
        if not all(np.isfinite(edge).all() for edge in edges):
            self.say(f"{NOTE}the action space has no bounds; actions will not be clipped")
        return True

    def _opening(self) -> bool:
        answer = self._try(lambda: self.env.reset(seed=self.seed), "reset")
        if answer is None:
            return False
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
            return self.say("reset must return (observation, info), with info a dict")
        return self._observation(answer[0], "reset")

    def _episodes(self) -> bool:
        self.env.action_space.seed(self.seed)
        ends = 0
        for _ in range(self.steps):
            answer = self._try(lambda: self.env.step(self.env.action_space.sample()), "step")
            if answer is None:
                return False
            if not isinstance(answer, tuple) or len(answer) != 5:
                return self.say("step must return (observation, reward, terminated, truncated, info)")
            observation, reward, terminated, truncated, info = answer
            if not self._outcome(reward, terminated, truncated, info) or not self._observation(observation, "step"):
                return False
            if terminated or truncated:
                ends += 1
                if self._try(self.env.reset, "reset after an episode") is None:
                    return False
        limit = getattr(getattr(self.env, "spec", None), "max_episode_steps", None)
        if not ends and not limit:
            self.say(f"{NOTE}no episode ended in {self.steps} random steps; a time limit (truncation) may be wise")
        return True

    def _outcome(self, reward: Any, terminated: Any, truncated: Any, info: Any) -> bool:
        if fault := outcome_fault(reward, terminated, truncated):
            return self.say(fault)
        if not np.isfinite(reward):
            return self.say(f"the reward is {reward}, not a finite number")
        if not isinstance(info, dict):
            return self.say(f"info is a {type(info).__name__}, not a dict")
        return True

    def _observation(self, observation: Any, where: str) -> bool:
        if fault := observation_fault(self.parts, observation):
            return self.say(f"{fault} (from {where})")
        for part in self.parts:
            array = np.asarray(part.find(observation))
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                return self.say(f"observation {part.name!r} holds {array[~np.isfinite(array)][0]} (from {where})")
            if array.dtype != part.given:
                self.say(f"{NOTE}observation {part.name!r} is {array.dtype}, its space says {part.given}")
        if not self.env.observation_space.contains(observation) and not any(NOTE in line for line in self.found):
            return self.say(f"an observation lies outside its space's bounds (from {where}): {_short(observation)}")
        return True

    def _repeats(self) -> bool:
        first, again = self._walk(), self._walk()
        if first is None or again is None:
            return False
        for at, (one, other) in enumerate(zip(first, again, strict=False)):
            if not _same(one, other):
                what = "reset" if at == 0 else f"step {at}"
                return self.say(f"with the same seed {what} gives something else; draw from self.np_random only")
        return True

    def _walk(self, steps: int = 20) -> list[Any] | None:
        self.env.action_space.seed(self.seed)
        answer = self._try(lambda: self.env.reset(seed=self.seed), "a second reset")
        if answer is None:
            return None
        seen = [answer[0]]
        for _ in range(steps):
            answer = self._try(lambda: self.env.step(self.env.action_space.sample()), "step")
            if answer is None:
                return None
            seen.append((answer[0], float(answer[1])))
            if answer[2] or answer[3]:
                break
        return seen

    def _late_step(self) -> None:
        """A step after the end should be refused or harmless, never answer with a broken observation."""
        for _ in range(self.steps):
            answer = self._try(lambda: self.env.step(self.env.action_space.sample()), "step")
            if answer is None or answer[2] or answer[3]:
                break
        else:
            return
        if answer is None:
            return
        try:
            observation = self.env.step(self.env.action_space.sample())[0]
        except Exception:
            return  # to refuse is right
        if observation_fault(self.parts, observation):
            self.say(f"{NOTE}a step after the end of an episode gives a broken observation; raise an error there")

    def _try(self, call: Callable[[], Any], where: str) -> Any:
        try:
            answer = call()
        except Exception as error:
            self.say(f"{where} raised {summary(error)}")
            return None
        if answer is None:
            self.say(f"{where} returned nothing")
        return answer


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return np.array_equal(np.asarray(one), np.asarray(other), equal_nan=np.asarray(one).dtype.kind == "f")


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) < 120 else text[:117] + "..."
