"""How fast two processes step a plain Gymnasium environment with random actions, nothing else being done."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import multiprocessing.synchronize
import time

import gymnasium
import numpy as np

PROCESSES = 2


def play(id: str, steps: int, seed: int, ready: multiprocessing.synchronize.Barrier) -> None:
    """Step one environment; its start is not timed."""
    env = gymnasium.make(id, disable_env_checker=True)
    env.reset(seed=seed)
    actions = np.random.default_rng(seed).integers(0, env.action_space.n, steps).tolist()
    ready.wait()
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    ready.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("env")
    parser.add_argument("--steps", type=int, default=40_000, help="in each process")
    arguments = parser.parse_args()
    ready = multiprocessing.Barrier(PROCESSES + 1)
    players = [
        multiprocessing.Process(target=play, args=(arguments.env, arguments.steps, seed, ready))
        for seed in range(PROCESSES)
    ]
    for player in players:
        player.start()
    ready.wait()
    start = time.perf_counter()
    ready.wait()
    seconds = time.perf_counter() - start
    for player in players:
        player.join()
    print(json.dumps({"steps_per_second": PROCESSES * arguments.steps / seconds}))


if __name__ == "__main__":
    main()
