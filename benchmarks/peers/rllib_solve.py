"""RLlib with the settings of its tuned PPO example for CartPole-v1, until it is solved.

All of it is in one process, because further ones take long to start.
"""

import argparse
import json
import time

import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from rllib_run import Best, build, sampled


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=180.0)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    deadline = time.time() + arguments.limit
    torch.set_num_threads(arguments.threads)
    algo = build(
        PPOConfig()
        .env_runners(num_env_runners=0, num_envs_per_env_runner=16)
        .learners(num_learners=0)
        .training(lr=3e-4, num_epochs=6, vf_loss_coeff=0.01)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[32], fcnet_activation="linear", vf_share_layers=True))
        .debugging(seed=arguments.seed)
    )
    best, solved_at, steps = Best(), None, 0
    while solved_at is None and time.time() < deadline:
        result = algo.train()
        steps = sampled(result)
        solved_at = time.time() if best.take(result) >= 475 else None
    print(json.dumps({"solved_at": solved_at, "best": best.mean, "steps": steps}))


if __name__ == "__main__":
    main()
