"""Tianshou with the settings of its own PPO test on CartPole-v1, until it is solved."""

import argparse
import json
import time
from collections import deque

import torch
from tianshou.utils.torch_utils import policy_within_training_step
from tianshou_agent import build


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=180.0)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    deadline = time.time() + arguments.limit
    torch.set_num_threads(arguments.threads)
    algorithm, collector = build(
        envs=20, seed=arguments.seed, activation=torch.nn.ReLU, shared=True, learning_rate=3e-4, gamma=0.99,
        gae_lambda=0.95, eps_clip=0.2, vf_coef=0.5, ent_coef=0.0, max_grad_norm=0.5, advantage_normalization=False,
    )  # fmt: skip
    returns: deque[float] = deque(maxlen=100)
    best, solved_at, steps = 0.0, None, 0
    collector.reset()
    with policy_within_training_step(algorithm.policy):
        while solved_at is None and time.time() < deadline:
            made = collector.collect(n_step=2000)
            steps += made.n_collected_steps
            for episode in made.returns:
                returns.append(float(episode))
                best = max(best, sum(returns) / 100)
            solved_at = time.time() if best >= 475 else None
            algorithm.update(buffer=collector.buffer, batch_size=64, repeat=10)
            collector.reset_buffer(keep_statistics=True)
    print(json.dumps({"solved_at": solved_at, "best": best, "steps": steps}))


if __name__ == "__main__":
    main()
