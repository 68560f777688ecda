"""`mill train CartPole-v1`, as people type it: when the mean of its last 100 training episodes reached 475.

The clock starts before the command does, and the moment is read from the episodes that the run stored.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mill = Path(sys.executable).with_name("mill")
        command = [mill, "train", "CartPole-v1", "--seed", str(arguments.seed), "--folder", folder]
        started_at = time.time()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        ended_at = time.time()
        (store,) = Path(folder).glob("*/metrics.sqlite")
        steps = json.loads(store.with_name("result.json").read_text())["steps"]
        episodes = sqlite3.connect(store).execute("SELECT return, at FROM episodes ORDER BY rowid").fetchall()
    returns: deque[float] = deque(maxlen=100)
    best, solved_at = 0.0, None
    for episode, at in episodes:
        returns.append(episode)
        best = max(best, sum(returns) / 100)
        if best >= 475 and solved_at is None:
            solved_at = at
    print(json.dumps({"started_at": started_at, "ended_at": ended_at, "solved_at": solved_at, "best": best,
                      "steps": steps}))  # fmt: skip


if __name__ == "__main__":
    main()
