from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from millstream.core.errors import EnvError
from millstream.core.spec import MASK, SINGLE, Box, Discrete, MultiDiscrete
from millstream.envs.gymnasium import Gymnasium, spread
from millstream.testing import EndlessEnv

MODES = [mode.value for mode in AutoresetMode]


class Scripted(gymnasium.Env):
    """Shows what it is told to show; an episode has three steps; keeps the actions that it was given."""

    def __init__(
        self, shown: Any, space: Any, actions: Any = None, info: dict | None = None, reward: Any = 1.0
    ) -> None:
        self.shown, self.observation_space = shown, space
        self.action_space = actions or spaces.Discrete(2)
        self.info, self.reward = info or {}, reward
        self.given: list[Any] = []
        self.age = 0

    def reset(self, *, seed=None, options=None):
        self.age = 0
        return self.shown, dict(self.info)

    def step(self, action):
        self.given.append(action)
        self.age += 1
        return self.shown, self.reward, self.age == 3, False, dict(self.info)


def adapted(*envs: gymnasium.Env, mode: str = "SameStep") -> Gymnasium:
    return Gymnasium(SyncVectorEnv([lambda env=env: env for env in envs], autoreset_mode=mode), "Scripted")


def one(shown: Any, space: Any, **kwargs: Any) -> Gymnasium:
    return adapted(Scripted(shown, space, **kwargs))


def zeros(env: Gymnasium) -> np.ndarray:
    return np.zeros((env.slots, *env.spec.action.shape), env.spec.action.dtype)


BOX = spaces.Box(-1, 1, (2,), np.float32)
FINE = np.zeros(2, np.float32)


def test_float64_becomes_float32() -> None:
    env = one(np.array([0.1, 0.2]), spaces.Box(-1, 1, (2,), np.float64))
    assert env.spec.observations[SINGLE] == Box((2,), "float32", -1.0, 1.0)
    assert env.reset(0).observations[SINGLE].dtype == np.float32


def test_images_stay_bytes() -> None:
    env = one(np.full((8, 8, 3), 7, np.uint8), spaces.Box(0, 255, (8, 8, 3), np.uint8))
    assert env.spec.observations[SINGLE].is_image
    assert env.reset(0).observations[SINGLE].dtype == np.uint8


def test_nested_dictionaries_and_tuples_become_flat_names() -> None:
    space = spaces.Dict(
        {
            "eye": spaces.Box(0, 255, (4, 4), np.uint8),
            "body": spaces.Dict({"speed": spaces.Box(-1, 1, (1,)), "gear": spaces.Discrete(3, start=1)}),
            "hands": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3]))),
        }
    )
    shown = {
        "eye": np.zeros((4, 4), np.uint8),
        "body": {"speed": np.array([0.5], np.float32), "gear": 3},
        "hands": (np.array([1, 0], np.int8), np.array([1, 2])),
    }
    env = one(shown, space)
    assert env.spec.observations == {
        "body.gear": Discrete(3),
        "body.speed": Box((1,), "float32", -1.0, 1.0),
        "eye": Box((4, 4), "uint8", 0.0, 255.0),
        "hands.0": MultiDiscrete((2, 2)),
        "hands.1": MultiDiscrete((2, 3)),
    }
    env.reset(0)
    for _ in range(3):
        step = env.step(np.zeros(1, np.int64))
    assert step.observations["body.gear"].tolist() == [2]  # counted from 0 here
    assert step.finals["body.gear"].tolist() == [2]
    assert step.finals["hands.0"].tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("space", "chosen", "given"),
    [
        (spaces.Discrete(3, start=-1), 0, -1),
        (spaces.MultiDiscrete([2, 3]), [1, 2], [1, 2]),
        (spaces.MultiDiscrete([[2, 3], [2, 2]]), [1, 2, 0, 1], [[1, 2], [0, 1]]),
        (spaces.MultiBinary(3), [1, 0, 1], [1, 0, 1]),
        (spaces.Box(-2, 2, (2,), np.float32), [5.0, -0.5], [2.0, -0.5]),
    ],
)
def test_actions_arrive_in_the_environments_own_terms(space: Any, chosen: Any, given: Any) -> None:
    single = Scripted(FINE, BOX, actions=space)
    env = adapted(single)
    env.reset(0)
    env.step(np.array([chosen], env.spec.action.dtype))
    assert np.array_equal(single.given[0], given)
    assert space.contains(single.given[0])


@pytest.mark.parametrize("space", [spaces.Text(5), spaces.Sequence(spaces.Discrete(2))])
def test_a_space_that_cannot_be_learned_from_is_named(space: Any) -> None:
    with pytest.raises(EnvError, match=type(space).__name__):
        one("x", space)
    with pytest.raises(EnvError, match=type(space).__name__):
        one(FINE, BOX, actions=space)


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (np.array([0.0, np.nan], np.float32), "slot 0 holds nan"),
        (np.array([-np.inf, 0.0], np.float32), "slot 0 holds -inf"),
    ],
)
def test_observations_that_are_not_finite_are_an_error(shown: np.ndarray, words: str) -> None:
    with pytest.raises(EnvError, match=words):
        one(shown, BOX).reset(0)


def test_very_large_but_finite_numbers_are_no_error() -> None:
    wide = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    assert one(np.array([3e38, -3e38], np.float32), wide).reset(0).first.all()


def test_a_choice_outside_its_space_is_an_error() -> None:
    with pytest.raises(EnvError, match="holds 4, not one of Discrete"):
        one(4, spaces.Discrete(4)).reset(0)


def test_a_reward_that_is_not_finite_is_an_error_with_its_slot() -> None:
    env = adapted(Scripted(FINE, BOX), Scripted(FINE, BOX, reward=np.inf))
    env.reset(0)
    with pytest.raises(EnvError, match="reward of slot 1 is inf"):
        env.step(zeros(env))


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        (np.array([2]), "action 2 is not one of"),
        (np.array([-1]), "action -1 is not one of"),
        (np.array([0.0]), "float64"),
        (np.array([[0]]), r"shape \(1, 1\)"),
    ],
)
def test_impossible_actions_are_an_error(actions: np.ndarray, words: str) -> None:
    env = one(FINE, BOX)
    env.reset(0)
    with pytest.raises(EnvError, match=words):
        env.step(actions)


def test_an_action_that_is_no_number_is_an_error() -> None:
    env = one(FINE, BOX, actions=spaces.Box(-1, 1, (1,)))
    env.reset(0)
    with pytest.raises(EnvError, match="no longer finite"):
        env.step(np.array([[np.nan]], np.float32))


def test_a_step_before_reset_is_an_error() -> None:
    with pytest.raises(EnvError, match="before its first reset"):
        one(FINE, BOX).step(np.zeros(1, np.int64))


def test_a_vector_that_does_not_say_how_it_resets_is_refused() -> None:
    vector = EndlessEnv(2)
    vector.metadata = {}
    with pytest.raises(EnvError, match="autoreset_mode"):
        Gymnasium(vector, "Silent")


@pytest.mark.parametrize("mode", MODES)
def test_masks_in_info_follow_the_episode_in_every_mode(mode: str) -> None:
    env = adapted(*(_Countdown() for _ in range(2)), mode=mode)
    assert env.spec.masked
    step = env.reset(0)
    assert step.masks.tolist() == [[True, True, True]] * 2
    opened = 0
    for _ in range(8):
        legal = np.array([row.argmax() for row in step.masks])
        step = env.step(legal)
        opened += int(step.first.sum())
        assert (step.masks[step.first] == [True, True, True]).all()
        assert not step.masks[~step.first & step.valid & ~(step.terminated | step.truncated)][:, 0].any()
    assert opened >= 2


class _Countdown(gymnasium.Env):
    """One action fewer is legal at each step; with none left the episode is over."""

    observation_space = BOX
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        self.age = 0
        return FINE, {MASK: np.ones(3, np.int8)}

    def step(self, action):
        self.age += 1
        return FINE, 0.0, self.age == 3, False, {MASK: np.array([at >= self.age for at in range(3)], np.int8)}


def test_a_mask_in_the_observation_is_taken_out_of_it() -> None:
    space = spaces.Dict({"board": BOX, MASK: spaces.MultiBinary(2)})
    env = one({"board": FINE, MASK: np.array([0, 1], np.int8)}, space)
    assert list(env.spec.observations) == ["board"]
    assert env.reset(0).masks.tolist() == [[False, True]]


def test_a_mask_that_allows_nothing_is_an_error() -> None:
    with pytest.raises(EnvError, match="allows no action"):
        one(FINE, BOX, info={MASK: np.zeros(2, np.int8)}).reset(0)


def test_a_mask_of_the_wrong_width_is_an_error() -> None:
    with pytest.raises(EnvError, match="action_mask has shape"):
        one(FINE, BOX, info={MASK: np.ones(3, np.int8)}).reset(0)


@pytest.mark.parametrize("mode", MODES)
def test_steps_wasted_on_resetting_are_counted_by_nobody(mode: str) -> None:
    env = Gymnasium(EndlessEnv(1, mode), "Endless")
    env.reset(0)
    valid = [bool(env.step(np.zeros(1, np.int64)).valid[0]) for _ in range(22)]
    assert valid.count(False) == (2 if mode == "NextStep" else 0)


def test_neighbouring_seeds_share_no_slot() -> None:
    slots = [{spread(seed) + slot for slot in range(64)} for seed in range(50)]
    assert len(set.union(*slots)) == 50 * 64


def test_an_environment_drawn_without_pictures_has_none() -> None:
    assert one(FINE, BOX).render(0) is None
