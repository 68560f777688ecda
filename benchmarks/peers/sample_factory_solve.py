"""Sample Factory with the settings of its own example for CartPole-v1, until it is solved."""

import argparse
import json

from sample_factory_run import Mark, train


def solved(mark: Mark) -> bool:
    """Whether the mean of the last 100 training episodes is there."""
    return mark.episodes >= 100 and mark.mean >= 475


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=180.0)
    arguments = parser.parse_args()
    settings = {
        "num_workers": 2, "num_envs_per_worker": 20, "policy_workers_per_policy": 2, "recurrence": 1, "batch_size": 512,
        "with_vtrace": False, "reward_scale": 0.1, "seed": arguments.seed,
    }  # fmt: skip
    marks = train(settings, arguments.limit, solved)
    found = {"solved_at": marks[-1].at if solved(marks[-1]) else None, "best": max(mark.mean for mark in marks)}
    print(json.dumps({**found, "steps": marks[-1].steps}))


if __name__ == "__main__":
    main()
