"""The same in Sample Factory: acting and learning overlap, environments step together."""

import json

from sample_factory_run import BATCHED, NETWORKS, rate, train

WARM, STEPS = 40_960, 245_760
UPDATES = 4 * 4
"""Gradients in one update; Sample Factory counts policy lag in those."""


def main() -> None:
    settings = {
        "rollout": 128, "batch_size": 2048, "num_batches_per_epoch": 4, "num_epochs": 4, "learning_rate": 3e-4,
        "gamma": 0.99, "gae_lambda": 0.95, "ppo_clip_ratio": 0.2, "exploration_loss_coeff": 0.0, "max_grad_norm": 0.5,
        "normalize_input": False, "normalize_returns": False, "seed": 1,
    }  # fmt: skip
    marks = train({**NETWORKS, **BATCHED, **settings}, 120, lambda mark: mark.steps >= WARM + STEPS)
    lag = sum(mark.lag for mark in marks) / len(marks) / UPDATES
    print(json.dumps({"steps_per_second": rate(marks, WARM), "lag": lag}))


if __name__ == "__main__":
    main()
