from __future__ import annotations

import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from millstream.core.errors import EnvError
from millstream.core.spec import SINGLE
from millstream.envs import drawing
from millstream.envs.cartpole import FAR, SPREAD, TILT, CartPole


def with_state(states: np.ndarray, ages: np.ndarray | None = None) -> CartPole:
    """CartPole whose slots are in these states of [position, velocity, angle, angular velocity]."""
    env = CartPole(len(states))
    env.reset(0)
    env._state[:] = states.reshape(-1, 2, 2).transpose(2, 1, 0)
    env._ages[:] = 0 if ages is None else ages
    return env


def theirs(state: np.ndarray, action: int):
    env = gymnasium.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    env.state = state
    return env.step(action)


def test_one_step_from_anywhere_equals_gymnasium_bit_for_bit() -> None:
    rng = np.random.default_rng(1)
    states = rng.uniform(-1, 1, (200, 4)) * [2.6, 3.0, 0.25, 3.0]
    actions = rng.integers(0, 2, 200)
    env = with_state(states)
    step = env.step(actions)
    shown = step.observations[SINGLE].copy()
    shown[step.ended] = step.finals[SINGLE]
    fallen = 0
    for slot in range(200):
        observation, reward, terminated, _, _ = theirs(states[slot], int(actions[slot]))
        assert np.array_equal(shown[slot], observation)
        assert step.rewards[slot] == reward
        assert step.terminated[slot] == terminated
        fallen += terminated
    assert 10 < fallen < 190


def test_a_whole_balanced_episode_equals_gymnasium_to_the_last_step() -> None:
    real = gymnasium.make("CartPole-v1")
    observation, _ = real.reset(seed=4)
    env = with_state(np.array([real.unwrapped.state]))
    for _ in range(500):
        action = int(3 * observation[2] + observation[3] + 0.1 * observation[0] + 0.3 * observation[1] > 0)
        observation, reward, terminated, truncated, _ = real.step(action)
        step = env.step(np.array([action]))
        assert (step.rewards[0], step.terminated[0], step.truncated[0]) == (reward, terminated, truncated)
        if terminated or truncated:
            break
        assert np.array_equal(step.observations[SINGLE][0], observation)
    assert truncated
    assert np.array_equal(step.finals[SINGLE][0], observation)


def test_the_500th_step_truncates_and_the_slot_starts_young_again() -> None:
    env = with_state(np.zeros((2, 4)), ages=np.array([499, 3]))
    step = env.step(np.array([0, 0]))
    assert step.truncated.tolist() == [True, False]
    assert step.ended.tolist() == [0]
    assert step.first.tolist() == [True, False]
    assert not env.step(np.array([1, 1])).truncated.any()


@pytest.mark.parametrize("state", [[FAR, 1, 0, 0], [-FAR, -1, 0, 0], [0, 0, TILT, 1], [0, 0, -TILT, -1]])
def test_each_limit_terminates(state: list[float]) -> None:
    assert with_state(np.array([state], float)).step(np.array([0])).terminated[0]


def test_first_states_are_drawn_from_the_whole_narrow_range() -> None:
    drawn = CartPole(2000).reset(0).observations[SINGLE]
    assert np.abs(drawn).max() <= SPREAD
    assert drawn.min(axis=0).max() < -0.045
    assert drawn.max(axis=0).min() > 0.045


def test_many_restarts_draw_no_state_twice() -> None:
    env = CartPole(64)
    opened = [env.reset(0).observations[SINGLE].copy()]
    for _ in range(600):
        step = env.step(np.ones(64, np.int64))
        opened.append(step.observations[SINGLE][step.ended])
    starts = np.concatenate(opened)
    assert len(starts) > 2048
    assert len(np.unique(starts, axis=0)) == len(starts)


def test_an_action_that_does_not_exist_is_named() -> None:
    env = CartPole(2)
    env.reset(0)
    with pytest.raises(EnvError, match="takes actions 0 and 1"):
        env.step(np.array([0, 2]))


def test_the_picture_follows_the_cart() -> None:
    left, right = with_state(np.array([[-1.0, 0, 0, 0]])).render(), with_state(np.array([[1.0, 0, 0, 0]])).render()
    assert left.shape == (400, 600, 3)
    assert left.dtype == np.uint8
    dark = [np.argwhere(picture.sum(axis=2) < 160)[:, 1].mean() for picture in (left, right)]
    assert dark[0] < 250 < 350 < dark[1]


@pytest.mark.parametrize("position", [-9.0, -2.75, 2.65, 2.75, 9.0])
def test_a_cart_that_leaves_the_picture_leaves_the_rest_of_it(position: float) -> None:
    picture = drawing.cartpole(position, 0.1)
    assert picture.shape == drawing.cartpole(0.0, 0.0).shape
    assert (picture[300:310, 250:350] == drawing.cartpole(-9.0, 0.1)[300:310, 250:350]).all()


def test_importing_cartpole_brings_neither_gymnasium_nor_pillow() -> None:
    code = "import sys, millstream.envs.cartpole; print([m for m in ('gymnasium', 'PIL', 'torch') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
