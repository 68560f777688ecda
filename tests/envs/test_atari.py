from __future__ import annotations

import numpy as np
import pytest

from millstream.core.errors import ConfigError
from millstream.core.spec import SINGLE, Box
from millstream.envs.atari import Preprocessing, split
from millstream.envs.registry import make

pytest.importorskip("ale_py", reason="ale-py is not installed")


@pytest.mark.parametrize("vector", ["native", "sync"])
def test_frames_are_single_grey_and_small_and_the_policy_sees_four(vector: str) -> None:
    env = make("ALE/Breakout-v5", 2, vector=vector)
    assert env.spec.observations == {SINGLE: Box((84, 84), "uint8", 0.0, 255.0)}
    assert env.spec.stack == 4
    frame = env.reset(0).observations[SINGLE].copy()
    for _ in range(8):
        step = env.step(np.array([2, 3]))
    assert (step.observations[SINGLE] != frame).any()
    env.close()


def test_a_lost_life_ends_an_episode_only_when_asked() -> None:
    ends = {}
    for asked in (False, True):
        env = make("ALE/Breakout-v5", 1, {"terminal_on_life_loss": asked, "noop_max": 1})
        env.reset(0)
        ends[asked] = sum(len(env.step(np.array([0])).ended) for _ in range(80))
        env.close()
    assert ends == {False: 0, True: pytest.approx(2, abs=1)}


def test_the_same_seed_plays_the_same_game() -> None:
    env = make("ALE/Pong-v5", 2)
    seen = []
    for _ in range(2):
        env.reset(7)
        seen.append([env.step(np.array([2, 3])).observations[SINGLE].tobytes() for _ in range(20)])
    env.close()
    assert seen[0] == seen[1]


def test_a_single_game_can_be_drawn_in_colour() -> None:
    env = make("ALE/Pong-v5", 1, render=True)
    env.reset(0)
    assert env.render(0).shape == (210, 160, 3)
    env.close()


def test_preprocessing_is_told_from_the_games_own_arguments() -> None:
    how, rest = split({"clip_rewards": True, "frame_skip": 2, "mode": 1})
    assert how == Preprocessing(clip_rewards=True, frame_skip=2)
    assert rest == {"mode": 1}


@pytest.mark.parametrize("args", [{"noop_max": "many"}, {"clip_rewards": 1}, {"frame_skip": True}])
def test_preprocessing_of_the_wrong_type_is_refused(args: dict) -> None:
    with pytest.raises(ConfigError, match=next(iter(args))):
        split(args)
