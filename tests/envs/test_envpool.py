from __future__ import annotations

import numpy as np
import pytest

from millstream.core.errors import UnknownName
from millstream.core.spec import SINGLE, Box, Discrete
from millstream.envs.registry import make

pytest.importorskip("envpool", reason="envpool is not installed")


def test_atari_frames_come_unstacked_and_the_policy_sees_four() -> None:
    env = make("envpool:Pong-v5", 2)
    assert env.spec.observations == {SINGLE: Box((84, 84), "uint8", 0.0, 255.0)}
    assert env.spec.stack == 4
    env.reset(0)
    assert env.step(np.zeros(2, np.int64)).observations[SINGLE].shape == (2, 84, 84)
    env.close()


def test_continuous_actions_and_choices_are_understood() -> None:
    pendulum, lake = make("envpool:Pendulum-v1", 2), make("envpool:FrozenLake-v1", 2)
    assert pendulum.spec.action == Box((1,), "float32", -2.0, 2.0)
    assert lake.spec.observations == {SINGLE: Discrete(16)}
    for env, action in ((pendulum, np.full((2, 1), 9.0, np.float32)), (lake, np.array([0, 3]))):
        env.reset(0)
        assert env.step(action).valid.all()
        env.close()


def test_the_seed_given_at_reset_decides_the_game() -> None:
    env = make("envpool:CartPole-v1", 2)
    first, again, other = (env.reset(seed).observations[SINGLE].copy() for seed in (1, 1, 2))
    env.close()
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_slots_keep_their_order() -> None:
    env = make("envpool:CartPole-v1", 16)
    before = env.reset(0).observations[SINGLE].copy()
    after = env.step(np.tile([0, 1], 8)).observations[SINGLE]
    env.close()
    assert np.allclose(after[:, 0], before[:, 0] + 0.02 * before[:, 1], atol=1e-6)
    assert (np.sign(after[:, 1] - before[:, 1]) == np.tile([-1, 1], 8)).all()


def test_an_unknown_name_offers_what_is_near() -> None:
    with pytest.raises(UnknownName, match="CartPole-v1"):
        make("envpool:CartPolle-v1", 1)
