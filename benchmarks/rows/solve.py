"""CartPole-v1, seconds from the start of the process until the mean of the last 100 training episodes is 475.

Ours is `mill train CartPole-v1` as people type it. Each peer has the settings that it is published with for this task.
A seed that does not get there in time, or fails, counts as the limit.
"""

from collections.abc import Mapping
from typing import Any

from measure import OURS, Side, alternate, table
from venvs import CLEANRL, RLLIB, SAMPLE_FACTORY, SB3, TIANSHOU

SEEDS = (101, 102, 103, 104, 105)  # none of them had a say in a preset
LIMIT = 120
COLUMNS = {"seeds that solve it": "solved", "best mean": "best", "steps": "steps", "seconds to exit": "whole"}


NEVER = {"solved_at": None, "seconds": LIMIT}


def row(repeats: int) -> str:
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in SEEDS:  # a seed is a repeat
        for name, results in alternate(_sides(seed), 1).items():
            found.setdefault(name, []).append(_timed(results[0]) if results else dict(NEVER))
    for results in found.values():
        solved = sum(result["solved_at"] is not None for result in results)
        for result in results:
            result["solved"] = solved
    told = table("CartPole-v1, seconds until it is solved", "seconds", "seconds", found, digits=1, more=COLUMNS)
    return f"{told}\n\nA seed that was not there after {LIMIT} seconds counts as {LIMIT}: that side is even slower."


def _timed(result: Mapping[str, Any]) -> dict[str, Any]:
    """How long it took, from a clock that runs before the process does."""
    seconds = (result["solved_at"] or result["started_at"] + LIMIT) - result["started_at"]
    return {**result, "seconds": seconds, "whole": result["ended_at"] - result["started_at"]}


def _sides(seed: int) -> list[Side]:
    word = ("--seed", str(seed))
    peers = {
        "Stable-Baselines3, settings of its zoo": (SB3, "sb3"),
        "RLlib, its tuned example": (RLLIB, "rllib"),
        "Tianshou, its own test": (TIANSHOU, "tianshou"),
        "Sample Factory, its example": (SAMPLE_FACTORY, "sample_factory"),
        "CleanRL, as it is": (CLEANRL, "cleanrl"),
    }
    return [
        Side("millstream, `mill train CartPole-v1`", OURS, "ours/solve.py", word),
        *(
            Side(name, peer.ready(), f"peers/{script}_solve.py", (*word, "--limit", str(LIMIT)), limit=2 * LIMIT)
            for name, (peer, script) in peers.items()
        ),
    ]
