"""A user's own environment of many slots fails in one clear line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from millstream.core.errors import EnvError
from millstream.core.ports import Snapshots
from millstream.envs.cartpole import CartPole
from millstream.envs.guarded import guarded


class Faulty(CartPole):
    def __init__(self, slots: int, fault: str) -> None:
        super().__init__(slots)
        self.fault = fault

    def step(self, actions: Any) -> Any:
        step = super().step(actions)
        if self.fault == "raises":
            raise ValueError("the wheel came off")
        if self.fault == "nan":
            step.observations["obs"][0, 0] = np.nan
        if self.fault == "reward":
            step.rewards[0] = np.inf
        if self.fault == "shape":
            step.observations["obs"].shape = (4, 2)
        return step


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raises", "mine failed in step: .*the wheel came off"),
        ("nan", "mine showed obs that is not a finite number in step"),
        ("reward", "mine gave a reward that is not a finite number in step"),
        ("shape", r"mine showed obs of shape \(4, 2\) in step, its spec says \(2, 4\)"),
    ],
)
def test_a_fault_is_said_with_the_name_of_the_environment(fault: str, said: str) -> None:
    env = guarded(Faulty(2, fault), "mine")
    env.reset(1)
    with pytest.raises(EnvError, match=said):
        env.step(np.zeros(2, np.int64))


def test_an_environment_that_can_be_kept_still_can() -> None:
    env = guarded(CartPole(2), "mine")
    assert isinstance(env, Snapshots)
    env.reset(1)
    kept = env.snapshot()
    once = np.array(env.step(np.ones(2, np.int64)).observations["obs"])
    env.restore(kept)
    assert np.array_equal(env.step(np.ones(2, np.int64)).observations["obs"], once)
