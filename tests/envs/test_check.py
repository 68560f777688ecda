from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from millstream.envs.cartpole import CartPole
from millstream.envs.check import check
from millstream.testing import Broken, DictEnv, MaskedEnv


class Fine(gymnasium.Env):
    """Nothing is wrong with it, and others differ from it in one thing."""

    observation_space: Any = spaces.Box(-1, 1, (2,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return self.look(), {}

    def step(self, action):
        self.age += 1
        return self.look(), 1.0, self.age >= 5, False, {}

    def look(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


class Unseeded(Fine):
    def look(self):
        return np.random.default_rng().uniform(-1, 1, 2).astype(np.float32)


class Outside(Fine):
    def look(self):
        return np.full(2, 3.0, np.float32)


class Double(Fine):
    def look(self):
        return np.zeros(2)


class FourValues(Fine):
    def step(self, action):
        return self.look(), 1.0, False, {}


class NoInfo(Fine):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.look()


class Forever(Fine):
    def step(self, action):
        return self.look(), 1.0, False, False, {}


class NanReward(Fine):
    def step(self, action):
        return self.look(), float("nan"), False, False, {}


class Spaceless(Fine):
    action_space = None


class Unlearnable(Fine):
    observation_space = spaces.Text(4)


class Unbounded(Fine):
    action_space = spaces.Box(-np.inf, np.inf, (1,))


class AfterTheEnd(Fine):
    def look(self):
        return np.zeros(2 if self.age <= 5 else 3, np.float32)


class Eager(Fine):
    age = 0


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert check(Fine()) == []
    assert check(Fine) == []
    assert check("CartPole-v1", steps=200) == []
    assert check("LunarLander-v3", steps=200) == []


@pytest.mark.parametrize("env", [CartPole, DictEnv, MaskedEnv, "Snake-v0", "millstream.testing:ImageGrid"])
def test_nothing_is_found_in_our_own(env: Any) -> None:
    assert check(env, steps=200) == []


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (Unseeded, "with the same seed reset gives something else"),
        (Outside, "outside its space's bounds"),
        (Double, "note: observation 'obs' is float64, its space says float32"),
        (FourValues, "step must return (observation, reward, terminated, truncated, info)"),
        (NoInfo, "reset must return (observation, info)"),
        (Forever, "note: no episode ended in 1000 random steps"),
        (NanReward, "the reward is nan"),
        (Spaceless, "it has no action_space"),
        (Unlearnable, "is not supported"),
        (Unbounded, "note: the action space has no bounds"),
        (AfterTheEnd, "note: a step after the end"),
        (Eager, "note: it can be stepped before its first reset"),
        (lambda: Broken("crash"), "step raised ValueError: the physics exploded"),
        (lambda: Broken("nan"), "holds nan"),
        (lambda: Broken("shape"), "has shape (3,), its space promises (2,)"),
        (lambda: Broken("reward"), "the reward is 'a lot' (str), not a number"),
        (lambda: Broken("flag"), "terminated is 0 (int), not a bool"),
        (lambda: Broken("reset"), "reset raised RuntimeError: the level file is missing"),
        ("no_such_world:Env", "it cannot be made: there is no module"),
    ],
)
def test_each_fault_is_said_in_plain_words(broken: Any, words: str) -> None:
    found = check(broken)
    assert len(found) == 1
    assert words in found[0]


class Forgetful(CartPole):
    """Breaks the promise of the port: it does not say which slots ended."""

    def step(self, actions):
        step = super().step(actions)
        object.__setattr__(step, "ended", step.ended[:0])
        object.__setattr__(step, "finals", {"obs": step.observations["obs"][:0]})
        return step


class Chancy(CartPole):
    """Draws from somewhere else."""

    def reset(self, seed):
        return super().reset(int(np.random.default_rng().integers(1 << 30)))


@pytest.mark.parametrize(("broken", "words"), [(Forgetful, "ended must name"), (Chancy, "with the same seed")])
def test_faults_of_many_slots_are_found_too(broken: Any, words: str) -> None:
    assert words in " ".join(check(broken))
