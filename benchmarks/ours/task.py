"""Any algorithm on any task, to its last step: how fast, how good it became. Without presets: a row says it all."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections import deque
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from millstream import config, training
from millstream.doors.options import read_pairs
from millstream.running import Callbacks


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("env")
    parser.add_argument("settings", nargs="*", help="KEY=VALUE, as after `mill train --set`")
    parser.add_argument("--warm", type=int, default=0, help="steps that are not timed")
    parser.add_argument("--steps", type=int, required=True, help="steps after those")
    parser.add_argument("--last", type=int, default=100, help="episodes whose mean return is told")
    arguments = parser.parse_intermixed_args()
    seen: list[dict[str, Any]] = []
    returns: deque[float] = deque(maxlen=arguments.last)
    callbacks = Callbacks(
        on_update=lambda report: seen.append(dict(report)),
        on_episode=lambda report: returns.append(report["return"]),
    )
    with tempfile.TemporaryDirectory() as folder:
        given = {"env.id": arguments.env, "total_steps": arguments.warm + arguments.steps, "evaluation.episodes": 0}
        experiment = config.load(overrides={**given, "folder": folder, **read_pairs(arguments.settings, "a setting")})
        training.start(experiment, callbacks=callbacks)
    first = next(report for report in seen if report["steps"] >= arguments.warm)
    last = seen[-1]
    steps = last["steps"] - first["steps"]
    found = {
        "steps_per_second": steps / (last["at"] - first["at"]),
        "samples_per_step": (last["samples"] - first["samples"]) / steps,
        "lag": sum(report["lag"] for report in seen) / len(seen),
        "train_return": sum(returns) / len(returns) if returns else None,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
