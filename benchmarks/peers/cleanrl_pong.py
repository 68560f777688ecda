"""CleanRL's PPO for EnvPool on Pong, run as the program that it is.

The program was written for a Gym that is no more: what it calls is handed on to Gymnasium's interface of EnvPool.
"""

import argparse
import json
import runpy
import subprocess
import sys
import tempfile
import time
import types
from typing import Any

ENVS, UNROLL = 8, 128


class Old:
    """An environment as the program expects it: four answers to a step, one to a reset."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self, **_: Any) -> Any:
        return self.env.reset()[0]

    def step(self, action: Any) -> tuple[Any, Any, Any, dict[str, Any]]:
        observations, rewards, terminated, truncated, info = self.env.step(action)
        return observations, rewards, terminated | truncated, {"reward": rewards, "terminated": terminated, **info}


class Wrapper(Old):
    """The same as a base of the program's own wrapper."""

    def reset(self, **words: Any) -> Any:
        return self.env.reset(**words)

    def step(self, action: Any) -> Any:
        return self.env.step(action)


def play() -> None:
    """Run the program in this process."""
    import envpool
    import gymnasium

    gym = types.ModuleType("gym")
    vars(gym).update(Wrapper=Wrapper, spaces=gymnasium.spaces)
    sys.modules["gym"] = gym
    make = envpool.make
    envpool.make = lambda id, env_type, **words: Old(make(id, env_type="gymnasium", **words))
    runpy.run_module("cleanrl.ppo_atari_envpool", run_name="__main__")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--warm", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=8192)
    arguments = parser.parse_args()
    settings = {
        "env-id": "Pong-v5", "total-timesteps": arguments.warm + arguments.steps, "num-envs": ENVS,
        "num-steps": UNROLL, "num-minibatches": 4, "update-epochs": 4, "learning-rate": 2.5e-4, "cuda": False,
    }  # fmt: skip
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    updated = []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-u", __file__, "play", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
            for line in process.stdout or ():
                if line.startswith("SPS:"):  # it says so once an update
                    updated.append(time.perf_counter())
    if process.returncode:
        sys.exit(process.returncode)
    first = arguments.warm // (ENVS * UNROLL) - 1
    steps = (len(updated) - 1 - first) * ENVS * UNROLL
    print(json.dumps({"steps_per_second": steps / (updated[-1] - updated[first])}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["play"]:
        del sys.argv[1]
        play()
    else:
        main()
