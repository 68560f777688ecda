"""Time comes in through the door, so that tests can bring their own."""

from __future__ import annotations

import time


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
