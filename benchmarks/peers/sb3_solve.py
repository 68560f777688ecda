"""Stable-Baselines3 with the settings that its zoo has for CartPole-v1, until it is solved.

The zoo trains for 100,000 steps, over which step size and clip range go to nothing. A run that is not done by then goes
on: its policy stays as it is, and the mean of its last episodes can still rise.
"""

import argparse
import json
import time
from collections.abc import Callable

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

BUDGET, LONGEST = 100_000, 1_000_000


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


def falling(first: float) -> Callable[[float], float]:
    """A value that falls in a straight line over the budget."""
    return lambda remaining: first * max(0.0, 1 - (1 - remaining) * LONGEST / BUDGET)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=180.0)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    watch = Watch(time.time() + arguments.limit)
    torch.set_num_threads(arguments.threads)
    env = make_vec_env("CartPole-v1", n_envs=8, seed=arguments.seed)
    model = PPO(
        "MlpPolicy", env, n_steps=32, batch_size=256, n_epochs=20, gamma=0.98, gae_lambda=0.8, ent_coef=0.0,
        learning_rate=falling(0.001), clip_range=falling(0.2), seed=arguments.seed, device="cpu",
    )  # fmt: skip
    model.learn(LONGEST, callback=watch)
    print(json.dumps({"solved_at": watch.solved_at, "best": watch.best, "steps": model.num_timesteps}))


if __name__ == "__main__":
    main()
