from __future__ import annotations

import os
import signal
import subprocess
import sys

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium.spaces import Box, Discrete

from millstream.core.errors import EnvError, EnvLost
from millstream.core.spec import SINGLE
from millstream.envs.gymnasium import Gymnasium
from millstream.envs.promises import actions_for
from millstream.envs.registry import make
from millstream.envs.vector import vectorise

FAULTS = {
    "crash": "raised in step: ValueError: the physics exploded",
    "nan": "holds nan",
    "inf": "holds inf",
    "shape": r"has shape \(3,\), its space promises \(2,\)",
    "dtype": "is <U1, its space promises float32",
    "reward": "the reward is 'a lot'",
    "flag": r"terminated is 0 \(int\), not a bool",
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_broken_promise_is_told_in_one_line_with_its_slot(kind: str) -> None:
    env = make("millstream.testing:Broken", 2, {"kind": kind, "after": 2})
    env.reset(0)
    rng = np.random.default_rng(0)
    for _ in range(2):
        env.step(actions_for(env.spec.action, 2, rng))
    with pytest.raises(EnvError, match=FAULTS[kind]) as caught:
        env.step(actions_for(env.spec.action, 2, rng))
    assert "slot 0" in str(caught.value)
    assert "\n" not in str(caught.value)


class OneArray(gymnasium.Env):
    """Shows its age in the same array every time."""

    observation_space, action_space = Box(0, 9, (1,), np.float32), Discrete(2)

    def __init__(self) -> None:
        self.shown = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        self.shown[:] = 0
        return self.shown, {}

    def step(self, action):
        self.shown += 1
        return self.shown, 0.0, bool(self.shown[0] == 3), False, {}


@pytest.mark.parametrize("mode", ["sync", "process"])
def test_the_last_observation_outlives_the_reset_of_the_array_it_was_shown_in(mode: str) -> None:
    env = Gymnasium(vectorise(OneArray, 2, mode), "OneArray")
    env.reset(0)
    for _ in range(3):
        step = env.step(np.zeros(2, np.int64))
    env.close()
    assert step.finals[SINGLE].tolist() == [[3.0], [3.0]]
    assert step.observations[SINGLE].tolist() == [[0.0], [0.0]]


def test_an_environment_that_cannot_reset_is_told_when_it_is_made() -> None:
    with pytest.raises(EnvError, match="slot 0 raised in reset: RuntimeError: the level file is missing"):
        make("millstream.testing:Broken", 2, {"kind": "reset"})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs Unix processes")
def test_processes_of_a_killed_owner_end_by_themselves() -> None:
    code = (
        "import sys, time; from millstream.envs.registry import make; env = make('CartPole-v1', 2, vector='process');"
        "print(*(p.pid for p in env._vector.processes), flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    line = owner.stdout.readline()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    # The workers hold the other end of this pipe: it ends when they do.
    assert owner.stdout.read() == ""
    assert len(line.split()) == 2


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGKILL, EnvLost), (signal.SIGUSR1, EnvError)])
def test_a_killed_process_is_named_and_the_others_end_with_it(number: signal.Signals, kind: type[EnvError]) -> None:
    env = make("CartPole-v1", 3, vector="process")
    env.reset(0)
    processes = [psutil.Process(each.pid) for each in env._vector.processes]
    processes[1].send_signal(number)
    with pytest.raises(EnvError, match=f"the process of slot 1 of CartPole-v1 was ended by {number.name}") as caught:
        for _ in range(3):
            env.step(np.zeros(3, np.int64))
    assert type(caught.value) is kind
    assert not psutil.wait_procs(processes, 5)[1]
    env.close()
