"""Stable-Baselines3 with the settings that its zoo has for CartPole-v1, until it is solved.

The zoo trains for 100,000 steps, over which step size and clip range go to nothing. A run that is not done by then goes
on: its policy stays as it is, and the mean of its last episodes can still rise.
"""

import argparse
import json
import time

import torch
from sb3_train import STEPS, zoo
from stable_baselines3.common.callbacks import BaseCallback

LONGEST = 1_000_000


class Watch(BaseCallback):
    """Looks once a rollout at the mean of the last 100 episodes, and stops when it is solved or time is over."""

    def __init__(self, deadline: float) -> None:
        super().__init__()
        self.deadline = deadline
        self.best = 0.0
        self.solved_at: float | None = None

    def _on_step(self) -> bool:
        if self.n_calls % self.model.n_steps:
            return True
        returns = [episode["r"] for episode in self.model.ep_info_buffer]
        if len(returns) == 100:
            self.best = max(self.best, sum(returns) / 100)
        if self.best >= 475:
            self.solved_at = time.time()
        return self.solved_at is None and time.time() < self.deadline


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=180.0)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    watch = Watch(time.time() + arguments.limit)
    torch.set_num_threads(arguments.threads)
    model = zoo(arguments.seed, LONGEST / STEPS)
    model.learn(LONGEST, callback=watch)
    print(json.dumps({"solved_at": watch.solved_at, "best": watch.best, "steps": model.num_timesteps}))


if __name__ == "__main__":
    main()
