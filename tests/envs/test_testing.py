"""The shipped worlds keep what they promise about their optimum."""

from __future__ import annotations

import numpy as np
import pytest

from millstream.core.errors import EnvError
from millstream.core.spec import SINGLE
from millstream.envs.cartpole import CartPole
from millstream.testing import (
    ContinuousEnv,
    DictEnv,
    FakeClock,
    HiddenVelocityCartPole,
    ImageGrid,
    MaskedEnv,
    MultiDiscreteEnv,
)


def returns(env, act, episodes: int = 200) -> np.ndarray:
    """The returns of complete episodes under a policy."""
    step = env.reset(0)
    running, finished = np.zeros(env.slots), []
    while len(finished) < episodes:
        step = env.step(act(env, step))
        running += step.rewards
        finished += running[step.ended].tolist()
        running[step.ended] = 0
    return np.array(finished)


def test_multi_discrete_pays_its_optimum_to_who_answers_both() -> None:
    def answer(env, step):
        asked = step.observations[SINGLE]
        return np.stack([asked[:, :3].argmax(1), asked[:, 3:].argmax(1)], axis=1)

    assert (returns(MultiDiscreteEnv(8), answer) == MultiDiscreteEnv.OPTIMUM).all()
    assert returns(MultiDiscreteEnv(8), lambda env, step: np.zeros((8, 2), np.int64)).mean() < 4


def test_the_dictionary_needs_both_its_parts() -> None:
    assert (returns(DictEnv(8), lambda env, step: env.answers()) == DictEnv.OPTIMUM).all()
    assert returns(DictEnv(8), lambda env, step: step.observations["goal"]).mean() == pytest.approx(5, abs=0.5)


def test_the_number_world_costs_nothing_to_who_repeats_it() -> None:
    assert (returns(ContinuousEnv(4), lambda env, step: step.observations[SINGLE].copy()) == 0).all()
    assert returns(ContinuousEnv(4), lambda env, step: np.zeros((4, 1), np.float32)).mean() < -10


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_a_shortest_walk_on_the_image_returns_the_optimum(channels: int) -> None:
    def walk(env, step):
        down, right = (env.goals - env.agents).T
        return np.where(down < 0, 0, np.where(down > 0, 2, np.where(right > 0, 1, 3)))

    env = ImageGrid(64, channels=channels)
    assert returns(env, walk, 4000).mean() == pytest.approx(env.optimum, abs=0.02)
    assert env.reset(0).observations[SINGLE].shape == (64, 10, 10, channels)


def test_the_image_shows_agent_and_goal_where_they_are() -> None:
    env = ImageGrid(5, channels=1)
    image = env.reset(0).observations[SINGLE][..., 0]
    for slot in range(5):
        assert image[slot][tuple(env.agents[slot])] == 255
        assert image[slot][tuple(env.goals[slot])] == 128
        assert (image[slot] > 0).sum() == 2


def test_an_illegal_action_is_an_error_in_the_masked_world() -> None:
    env = MaskedEnv(20)
    step = env.reset(0)
    with pytest.raises(EnvError, match="mask forbids"):
        env.step(step.masks.argmin(axis=1))


def test_the_masks_of_the_masked_world_hold_after_an_episode_ends() -> None:
    best = returns(MaskedEnv(4), lambda env, step: 3 - step.masks[:, ::-1].argmax(axis=1))
    assert best.mean() > 6


def test_hidden_cartpole_is_cartpole_without_speeds() -> None:
    hidden, whole = HiddenVelocityCartPole(8), CartPole(8)
    hidden.reset(3), whole.reset(3)
    rng = np.random.default_rng(0)
    for _ in range(60):
        actions = rng.integers(0, 2, 8)
        part, all_of_it = hidden.step(actions), whole.step(actions)
        assert np.array_equal(part.observations[SINGLE], all_of_it.observations[SINGLE][:, [0, 2]])
        assert np.array_equal(part.finals[SINGLE], all_of_it.finals[SINGLE][:, [0, 2]])


def test_a_fake_clock_moves_only_when_told() -> None:
    clock = FakeClock(start=100.0)
    assert (clock.now(), clock.monotonic()) == (100.0, 0.0)
    clock.rest(2.5)
    clock.advance(1.0)
    assert (clock.now(), clock.monotonic()) == (103.5, 3.5)
