from __future__ import annotations

import numpy as np
import pytest

from millstream.core.errors import ConfigError, EnvError
from millstream.core.spec import SINGLE
from millstream.envs.snake import Snake


def test_a_snake_that_goes_straight_on_dies_at_the_wall_and_is_told_so() -> None:
    env = Snake(8, size=6, vision=2)
    env.reset(0)
    died = np.zeros(8, bool)
    for _ in range(6):
        step = env.step(np.zeros(8, np.int64))
        assert (step.rewards[step.terminated] <= 0).all()
        assert not step.truncated.any()
        died |= step.terminated
    assert died.all()


def test_food_pays_and_lengthens_and_another_appears() -> None:
    env = Snake(1, size=7, vision=6)
    env.reset(3)
    ate = 0
    for _ in range(200):
        step = env.step(np.array([_towards_food(env)]))
        ate += step.rewards[0] == 1.0
        if step.terminated[0]:
            break
        assert (env.board.grid(0) == 1).sum() == 1
        assert env.board.lengths[0] + env.board.growing[0] == 3 + ate
    assert ate >= 3


def test_a_starving_snake_is_truncated_not_terminated() -> None:
    env = Snake(1, size=9, vision=1, patience=12, foods=0)
    env.reset(0)
    flags = []
    for _ in range(12):
        step = env.step(np.array([1]))  # round and round
        flags.append((bool(step.terminated[0]), bool(step.truncated[0])))
    assert flags == [(False, False)] * 11 + [(False, True)]
    assert step.first[0]


def test_rewards_can_be_chosen() -> None:
    env = Snake(1, size=5, vision=1, foods=0, death=-7.0, move=-0.5)
    env.reset(0)
    rewards = []
    for _ in range(5):
        step = env.step(np.array([0]))
        rewards.append(float(step.rewards[0]))
        if step.terminated[0]:
            break
    assert rewards[-1] == -7.5
    assert set(rewards[:-1]) <= {-0.5}


def test_the_flat_view_and_the_image_tell_the_same() -> None:
    flat, image = Snake(4, size=8, vision=3), Snake(4, size=8, vision=3, view="image")
    flat.reset(1), image.reset(1)
    rng = np.random.default_rng(0)
    for _ in range(50):
        actions = rng.integers(0, 3, 4)
        one, other = flat.step(actions).observations[SINGLE], image.step(actions).observations[SINGLE]
        planes = other[..., :2].transpose(0, 3, 1, 2).reshape(4, -1)
        assert np.array_equal(one * 255, planes)


def test_several_snakes_share_a_board_and_the_dead_return() -> None:
    env = Snake(8, size=8, vision=2, snakes=4)
    env.reset(0)
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(500):
        ends += len(env.step(rng.integers(0, 3, 8)).ended)
        for board in range(2):
            grid = env.board.grid(board)
            assert (grid == 3).sum() == 4
            assert ((grid == 2) | (grid == 3)).sum() == env.board.lengths[4 * board : 4 * board + 4].sum()
    assert ends > 20


def test_the_final_view_is_of_the_crash() -> None:
    env = Snake(1, size=5, vision=1, foods=0)
    env.reset(0)
    for _ in range(5):
        step = env.step(np.array([0]))
        if step.terminated[0]:
            break
    centre = 4  # of the 3 by 3 plane of what kills: the head stands in the wall
    assert step.finals[SINGLE][0][centre] == 1.0
    assert step.finals[SINGLE][0][:3].tolist() == [1.0, 1.0, 1.0]


def test_the_picture_shows_the_board_in_its_wall() -> None:
    env = Snake(2, size=6, vision=1)
    env.reset(0)
    picture = env.render(1)
    assert picture.shape == (8 * 24, 8 * 24, 3)
    assert picture.dtype == np.uint8


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"slots": 3, "snakes": 2}, "multiple"),
        ({"slots": 1, "size": 2}, "too small"),
        ({"slots": 1, "vision": 0}, "vision"),
        ({"slots": 1, "view": "text"}, "view"),
    ],
)
def test_impossible_boards_are_refused(args: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Snake(**args)


def test_an_action_that_does_not_exist_is_named() -> None:
    env = Snake(1)
    env.reset(0)
    with pytest.raises(EnvError, match="actions 0, 1 and 2"):
        env.step(np.array([3]))


def _towards_food(env: Snake) -> int:
    """The safe action that comes nearest to food in view."""
    view, middle = env.board.view()[0], env.board.vision
    ways = {0: (middle - 1, middle), 1: (middle, middle - 1), 2: (middle, middle + 1)}
    safe = [action for action, at in ways.items() if view[at] <= 1] or [0]
    foods = np.argwhere(view == 1)
    return min(safe, key=lambda action: np.abs(foods - ways[action]).sum(axis=1).min(initial=99))
