"""kill -9 of the learner while it trains: seconds until the next one computes its first gradient."""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from timed import NOTES, noted

COMMAND = (str(Path(sys.executable).with_name("mill")), "train", "CartPole-v1", "--algo", "timed:Timed")
LONG = ("--total-steps", "500000000", "--target", "none", "--eval-episodes", "0")
KILLS, LIMIT, BETWEEN = 3, 60.0, 3.0


def next_learner(notes: Path, before: int) -> tuple[dict[str, float], psutil.Process]:
    """The note of a first gradient that comes after so many, and who wrote it."""
    ends = time.monotonic() + LIMIT
    while time.monotonic() < ends:
        found = noted(notes, "gradient")
        if len(found) > before:
            return found[before], psutil.Process(int(found[before]["pid"]))
        time.sleep(0.01)
    raise SystemExit(f"no learner computed a gradient in {LIMIT:.0f} s")


def born(process: psutil.Process) -> float:
    """When a process was started, on the clock of the notes."""
    after_name = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    since_boot = int(after_name[19]) / os.sysconf("SC_CLK_TCK")
    return since_boot - time.clock_gettime(time.CLOCK_BOOTTIME) + time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    _, words = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder, "notes.jsonl")
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        environ = {**os.environ, NOTES: str(notes), "PYTHONPATH": path}
        command = [*COMMAND, *LONG, "--folder", folder, *words]
        with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL) as training:
            try:
                print(json.dumps(measured(notes)))
            finally:
                training.send_signal(signal.SIGINT)
                training.wait(LIMIT)


def measured(notes: Path) -> dict[str, float]:
    started, killed = [], []
    _, learner = next_learner(notes, 0)
    for turn in range(KILLS):
        time.sleep(BETWEEN)  # it has something to come back to
        learner.kill()
        at = time.monotonic()
        gradient, learner = next_learner(notes, turn + 1)
        started.append(gradient["gradient"] - born(learner))
        killed.append(gradient["gradient"] - at)
    return {"started": statistics.median(started), "killed": statistics.median(killed), "slowest": max(started)}


if __name__ == "__main__":
    main()
