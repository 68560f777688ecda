"""Time comes in through the door, so that tests can bring their own."""

from __future__ import annotations

import os
import time
from pathlib import Path


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        """Seconds since 1970, for stamps that people read."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back, for durations."""
        return time.perf_counter()

    def rest(self, seconds: float) -> None:
        """Let others have the processor."""
        time.sleep(seconds)


def process_started_at() -> float:
    """When this process began, in seconds since 1970; where the system does not tell, now."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return time.time()
    return time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")
