"""The same in CleanRL."""

import json

from cleanrl_run import episodes

ROLLOUT, WARM, ROUNDS = 64 * 128, 3, 20


def main() -> None:
    starts: dict[int, tuple[float, int]] = {}  # of each rollout, the first episode that ended in it
    settings = ("--num-envs", "64", "--num-steps", "128", "--n-minibatch", "4", "--update-epochs", "4",
                "--learning-rate", "3e-4", "--anneal-lr", "False", "--gamma", "0.99", "--gae-lambda", "0.95",
                "--ent-coef", "0", "--clip-vloss", "False",
                "--total-timesteps", str((WARM + ROUNDS + 1) * ROLLOUT))  # fmt: skip
    for at, step, _ in episodes(*settings):
        starts.setdefault(step // ROLLOUT, (at, step))
    first, last = starts[WARM], starts[WARM + ROUNDS]
    print(json.dumps({"steps_per_second": (last[1] - first[1]) / (last[0] - first[0])}))


if __name__ == "__main__":
    main()
