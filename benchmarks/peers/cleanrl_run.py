"""CleanRL's PPO, run as the program that it is, and what it prints about its episodes."""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

EPISODE = re.compile(r"global_step=(\d+), episode_reward=([\d.]+)")


def episodes(*settings: str) -> Iterator[tuple[float, int, float]]:
    """When each episode ended, after how many steps of all environments, and its return; leaving ends the program."""
    command = [sys.executable, "-u", "-m", "cleanrl.ppo", "--gym-id", "CartPole-v1", *settings]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process,
    ):
        try:
            for line in process.stdout or ():
                if found := EPISODE.match(line):
                    yield time.time(), int(found[1]), float(found[2])
        finally:
            process.kill()
