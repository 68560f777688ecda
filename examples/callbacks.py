"""Functions that are called while a run happens, one of which ends it: `python examples/callbacks.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import millstream

returns: list[float] = []


def on_episode(report: Mapping[str, Any]) -> None:
    """Once for each training episode: actor, slot, return, length, at."""
    returns.append(report["return"])


def on_update(report: Mapping[str, Any]) -> None:
    """Once for each update: steps, lag, lesson (losses by name), seconds by stage, ..."""
    if report["update"] % 5 == 0:
        print(f"update {report['update']:3}  entropy {report['lesson']['entropy']:.3f}  lag {report['lag']:.0f}")


def on_evaluation(report: Mapping[str, Any]) -> bool:
    """Once for each evaluation; a callback that answers False stops the run, which is saved as usual."""
    print(f"evaluation after {report['steps']:,} steps: {report['mean']:.0f}")
    return report["mean"] < 400


if __name__ == "__main__":
    run = millstream.train(
        "CartPole-v1",
        topology="inline",
        total_steps=60_000,
        evaluation__every=10_000,
        evaluation__episodes=10,
        on_episode=on_episode,
        on_update=on_update,
        on_evaluation=on_evaluation,
    )
    print(f"stopped by {run.result['stopped_by']} after {len(returns)} episodes; resume it with mill resume {run.id}")
