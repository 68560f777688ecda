"""`make bench`: each row of the table, ours beside its peers in one run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from measure import Side, alternate, table
from venvs import REJAX, SB3

OURS = Path(sys.executable)


def ppo(repeats: int) -> str:
    """PPO on CartPole-v1 with equal settings: 64 x 128 steps, minibatch 2048, 4 epochs, two 64 x 64 tanh networks."""
    sides = [
        Side("millstream, processes", OURS, "ours/ppo.py", ("--topology", "processes")),
        Side("millstream, inline strict", OURS, "ours/ppo.py", ("--topology", "inline")),
        Side("rejax", REJAX.ready(), "peers/rejax_ppo.py"),
        Side("Stable-Baselines3", SB3.ready(), "peers/sb3_ppo.py"),
    ]
    found = alternate(sides, repeats)
    return table("PPO, CartPole-v1, environment steps a second", "steps_per_second", "steps/s", found)


ROWS: dict[str, Callable[[int], str]] = {"ppo": ppo}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(ROWS), action="append", help="measure only this row (repeatable)")
    parser.add_argument("--repeats", type=int, default=3, help="how often each side runs")
    arguments = parser.parse_args()
    for name in arguments.only or ROWS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        print(ROWS[name](arguments.repeats), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
