"""From `mill train CartPole-v1` to its first training: until the first rollout is made, and until the first update is.

Both moments are in the run's own store; a rollout of the preset is 32 steps of 32 environments.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from millstream.telemetry import store

COMMAND = (str(Path(sys.executable).with_name("mill")), "train", "CartPole-v1")
SHORT = ("--total-steps", "8192", "--eval-episodes", "0")  # what comes later does not matter here


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        start = time.time()
        subprocess.run([*COMMAND, *SHORT, "--folder", folder], check=True, stdout=subprocess.DEVNULL)
        (metrics,) = Path(folder).glob(f"*/{store.STORE}")
        stepped = store.episodes(metrics)[0]["at"]
        updated = store.scalars(metrics, "mill/updates")[0]["at"]
    print(json.dumps({"first_steps": stepped - start, "first_update": updated - start}))


if __name__ == "__main__":
    main()
