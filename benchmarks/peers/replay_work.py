"""What every side of the row `replay` is given to do, and how it is timed."""

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

BLOCK, BATCH = 64, 256
ROOM, ROOM_IMAGES = 100_000, 10_000
"""Transitions that a buffer holds while it is timed; it is full before, so that all of its memory has been touched."""
NUMBERS, IMAGES = ((4,), np.float32), ((84, 84, 4), np.uint8)
SECONDS = 0.6


def block(about: tuple[tuple[int, ...], Any], seed: int = 0) -> dict[str, np.ndarray]:
    """64 transitions; every twentieth ends an episode."""
    rng, (shape, dtype) = np.random.default_rng(seed), about
    seen = (rng.random((2, BLOCK, *shape)) * 255).astype(dtype)
    over = np.arange(BLOCK) % 20 == 19
    return {
        "obs": seen[0],
        "next_obs": seen[1],
        "action": rng.integers(0, 6, BLOCK),
        "reward": rng.random(BLOCK).astype(np.float32),
        "terminated": over,
        "truncated": np.roll(over, 7),
    }


def rate(work: Callable[[], object], count: int) -> float:
    """Transitions a second: the median over stretches of ten calls or more."""
    for _ in range(3):
        work()
    start = time.perf_counter()
    work()
    calls = max(10, int(0.01 / max(1e-9, time.perf_counter() - start)))
    rates, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(rates) < 3:
        start = time.perf_counter()
        for _ in range(calls):
            work()
        rates.append(calls * count / (time.perf_counter() - start))
    return statistics.median(rates)


def fill(add: Callable[[], object], room: int) -> None:
    """All of the room, once."""
    for _ in range(-(-room // BLOCK) + 1):
        add()


def told(measured: dict[str, float]) -> None:
    """Say it as rows expect it."""
    print(json.dumps(measured))
