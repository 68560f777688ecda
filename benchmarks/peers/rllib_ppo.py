"""The same in RLlib: processes act, then the learner has the cores; with none, one process does both in turn."""

import argparse
import json
import time

from ray.rllib.algorithms.ppo import PPOConfig
from rllib_run import NETWORKS, build, sampled

WARM, ROUNDS = 2, 12


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runners", type=int, default=2, help="processes that act")
    arguments = parser.parse_args()
    algo = build(
        PPOConfig()
        .env_runners(num_env_runners=arguments.runners, num_envs_per_env_runner=64 // max(1, arguments.runners))
        .learners(num_learners=0)
        .training(
            train_batch_size_per_learner=64 * 128, minibatch_size=2048, num_epochs=4, lr=3e-4, gamma=0.99,
            lambda_=0.95, clip_param=0.2, grad_clip=0.5, use_kl_loss=False,
        )
        .rl_module(model_config=NETWORKS)
    )  # fmt: skip
    for _ in range(WARM):
        before = sampled(algo.train())
    start = time.perf_counter()
    for _ in range(ROUNDS):
        after = sampled(algo.train())
    print(json.dumps({"steps_per_second": (after - before) / (time.perf_counter() - start)}))


if __name__ == "__main__":
    main()
