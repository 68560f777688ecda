"""IMPALA on CartPole-v1 as its preset has it (unroll 20, 64 environments), on and on beyond its target."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections import deque
from collections.abc import Mapping
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"

import millstream

WARM = 100_000


class Episodes:
    """The best mean of 100 training episodes in a row."""

    def __init__(self) -> None:
        self.best = 0.0
        self._returns: deque[float] = deque(maxlen=100)
        self._sum = 0.0

    def __call__(self, report: Mapping[str, Any]) -> None:
        self._sum += report["return"] - (self._returns[0] if len(self._returns) == 100 else 0.0)
        self._returns.append(report["return"])
        self.best = max(self.best, self._sum / 100)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    seen: list[tuple[int, float, int, float]] = []
    episodes = Episodes()
    with tempfile.TemporaryDirectory() as folder:
        millstream.train(
            "CartPole-v1",
            algo="impala",
            seed=arguments.seed,
            total_steps=WARM + arguments.steps,
            target=None,
            folder=folder,
            actor__envs=64,
            actor__unroll=20,
            epochs=1,
            evaluation__episodes=0,
            on_update=lambda report: seen.append((report["steps"], report["at"], report["samples"], report["lag"])),
            on_episode=episodes,
        )
    first, last = next(each for each in seen if each[0] >= WARM), seen[-1]
    rate = (last[0] - first[0]) / (last[1] - first[1])
    lag = sum(each[3] for each in seen) / len(seen)
    print(json.dumps({"steps_per_second": rate, "samples_per_step": last[2] / last[0], "lag": lag,
                      "best": episodes.best}))  # fmt: skip


if __name__ == "__main__":
    main()
