"""Sample Factory's APPO on CartPole-v1: unroll 20, 64 environments, two 64 x 64 tanh networks, each step used once.

It learns without V-trace, as its own example for CartPole-v1 does; version 2.1.1 fails with it.
"""

import argparse
import json

from sample_factory_run import BATCHED, NETWORKS, PLAIN, rate, train


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--warm", type=int, default=50_000, help="steps that are not timed")
    parser.add_argument("--steps", type=int, default=600_000, help="steps after those")
    parser.add_argument("--batched", action="store_true", help="environments step together")
    arguments = parser.parse_args()
    settings = {
        "rollout": 20, "batch_size": 64 * 20, "num_batches_per_epoch": 1, "num_epochs": 1, "learning_rate": 1e-3,
        "reward_scale": 0.1, "seed": 1,
    }  # fmt: skip
    last, layout = arguments.warm + arguments.steps, BATCHED if arguments.batched else PLAIN
    marks = train({**NETWORKS, **layout, **settings}, 120, lambda mark: mark.steps >= last)
    lag, best = sum(mark.lag for mark in marks) / len(marks), max(mark.mean for mark in marks)
    print(json.dumps({"steps_per_second": rate(marks, arguments.warm), "lag": lag, "best": best}))


if __name__ == "__main__":
    main()
