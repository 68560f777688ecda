"""A fast row must also learn: return of the sides of the PPO row after 500,000 steps, over five seeds.

Every side has the hyper-parameters of that row, which are the defaults of both libraries but for the shapes. A return
is the mean of the last 100 training episodes; intervals are Student's, at 95 %.
"""

import math
import statistics
from collections.abc import Sequence

from measure import OURS, Failed, Side, alternate
from venvs import SB3

from rows.ppo import SETTINGS

SEEDS = (1, 2, 3, 4, 5)
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # values: standard errors within which 95 % lie
STEPS = 500_000
PEER = "Stable-Baselines3"


def row(repeats: int) -> str:
    returns: dict[str, list[float]] = {}
    for seed in SEEDS:  # a seed is a repeat
        for name, results in alternate(_sides(seed), 1).items():
            returns.setdefault(name, []).extend(float(result["train_return"]) for result in results)
    peer = interval(returns[PEER])
    lines = [
        f"### PPO, CartPole-v1, return after {STEPS:,} steps, {len(SEEDS)} seeds",
        "",
        "| side | mean return | 95 % interval | seeds | counts |",
        "|---|---|---|---|---|",
    ]
    for name, values in returns.items():
        if len(values) not in STUDENT:
            lines.append(f"| {name} | failed | - | - | - |")
            continue
        low, high = interval(values)
        counts = "the peer" if name == PEER else "yes" if high >= peer[0] else "no: below the peer's interval"
        each = ", ".join(f"{value:.0f}" for value in values)
        lines.append(f"| {name} | {statistics.mean(values):.1f} | {low:.1f} to {high:.1f} | {each} | {counts} |")
    return "\n".join(lines)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Where the mean lies, with 95 % confidence."""
    if len(values) not in STUDENT:
        raise Failed(f"{len(values)} seeds of a side came to their end: too few for an interval")
    mean, half = statistics.mean(values), STUDENT[len(values)] * statistics.stdev(values) / math.sqrt(len(values))
    return mean - half, mean + half


def _sides(seed: int) -> list[Side]:
    steps = ("--steps", str(STEPS))
    ours = (*SETTINGS, *steps, f"seed={seed}")
    return [
        Side("millstream, processes", OURS, "ours/task.py", (*ours, "topology=processes")),
        Side("millstream, inline strict", OURS, "ours/task.py", (*ours, "topology=inline")),
        Side(PEER, SB3.ready(), "peers/sb3_task.py", ("CartPole-v1", *steps, "--seed", str(seed))),
    ]
