"""An environment of one's own, checked, trained on and played: `python examples/own_environment.py`."""

from __future__ import annotations

import gymnasium
import numpy as np

import millstream
from millstream.envs.check import check


class Thermostat(gymnasium.Env):
    """Keep a room at 20 degrees by heating or not; it cools by itself."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        """A room somewhere between 15 and 25 degrees."""
        super().reset(seed=seed)
        self.degrees, self.minutes = self.np_random.uniform(15, 25), 0
        return self._seen(), {}

    def step(self, action):
        """One minute. It never terminates: after an hour we stop watching, which is a truncation."""
        self.degrees = np.clip(self.degrees + (1.0 if action else -0.5), 10, 30)
        self.minutes += 1
        return self._seen(), 1 - abs(self.degrees - 20) / 10, False, self.minutes >= 60, {}

    def _seen(self):
        return np.array([(self.degrees - 20) / 10], np.float32)


if __name__ == "__main__":
    faults = [finding for finding in check(Thermostat) if not finding.startswith("note:")]
    print("faults:", faults or "none")
    # "own_environment:Thermostat" is how the worker processes find the class: by module and name
    run = millstream.train("own_environment:Thermostat", actor__envs=16, actor__unroll=60, total_steps=20_000)
    print(f"{run.evaluation['mean']:.1f} of 60 points, after {run.result['steps']:,} steps")
    policy = millstream.load(run.folder)
    print("at 17 degrees:", "heat" if policy.act([-0.3]) else "wait")
    print("at 23 degrees:", "heat" if policy.act([0.3]) else "wait")
