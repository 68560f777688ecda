"""PPO on CartPole-v1 with the settings that every side of this row has."""

from __future__ import annotations

import argparse
import json
import os
import tempfile

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"

import millstream

WARM = 81_920


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--topology", default="processes")
    parser.add_argument("--steps", type=int, default=1_638_400)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    seen: list[tuple[int, float, int, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        run = millstream.train(
            "CartPole-v1",
            seed=arguments.seed,
            topology=arguments.topology,
            total_steps=WARM + arguments.steps,
            target=None,
            folder=folder,
            actor__envs=64,
            actor__unroll=128,
            minibatch=2048,
            epochs=4,
            learning_rate=3e-4,
            discount=0.99,
            trace=0.95,
            evaluation__episodes=0,
            on_update=lambda report: seen.append((report["steps"], report["at"], report["samples"], report["lag"])),
        )
    warm = next(index for index, each in enumerate(seen) if each[0] >= WARM)
    first, last = seen[warm], seen[-1]
    rate = (last[0] - first[0]) / (last[1] - first[1])
    lag = sum(each[3] for each in seen) / len(seen)
    print(json.dumps({"steps_per_second": rate, "samples_per_step": last[2] / last[0], "lag": lag,
                      "train_return": run.train_return}))  # fmt: skip


if __name__ == "__main__":
    main()
