"""While training: milliseconds from the moment the learner has a policy to publish until an actor acts with it."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
from timed import NOTES, noted

from millstream import config, training
from millstream.doors.options import read_pairs

WARM = 20
"""Policies that are not counted."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("env")
    parser.add_argument("settings", nargs="*", help="KEY=VALUE, as after `mill train --set`")
    parser.add_argument("--steps", type=int, required=True)
    arguments = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder, "notes.jsonl")
        os.environ[NOTES] = str(notes)
        given = {"env.id": arguments.env, "algo": "timed:Timed", "total_steps": arguments.steps, "folder": folder}
        pairs = read_pairs(arguments.settings, "a setting")
        training.start(config.load(overrides={**given, "evaluation.episodes": 0, **pairs}))
        took = [1000 * (line["acted"] - line["made"]) for line in noted(notes, "acted")][WARM:]
    p50, p99 = np.percentile(took, [50, 99])
    print(json.dumps({"p50": p50, "p99": p99, "policies": len(took)}))


if __name__ == "__main__":
    main()
