"""What the server has counted."""

from __future__ import annotations

import threading
from collections import Counter

from millstream.core.data import Statistics, Version


class Counts:
    """Counters behind a lock of their own, so that reading them never waits for arithmetic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refused: Counter[str] = Counter()
        self._sums: Counter[str] = Counter()
        self._lag_max = 0

    def refuse(self, cause: str) -> None:
        """One push was not taken."""
        with self._lock:
            self._refused[cause] += 1

    def accept(self, size: int, lag: int) -> None:
        """One push of so many bytes was taken."""
        with self._lock:
            self._sums.update(accepted=1, bytes=size, lag=lag)
            self._lag_max = max(self._lag_max, lag)

    def add(self, name: str, count: int = 1) -> None:
        """So many more of something."""
        with self._lock:
            self._sums[name] += count

    def statistics(
        self, version: Version, steps: int, waiting: int, epsilon: float | None, delta: float | None
    ) -> Statistics:
        """All counters at one moment."""
        with self._lock:
            sums, refused, lag_max = Counter(self._sums), dict(self._refused), self._lag_max
        return Statistics(
            version=version,
            steps=steps,
            accepted=sums["accepted"],
            refused=refused,
            replaced=sums["replaced"],
            dropped=sums["dropped"],
            rounds=sums["rounds"],
            waiting=waiting,
            bytes=sums["bytes"],
            lag=sums["lag"] / max(sums["accepted"], 1),
            lag_max=lag_max,
            epsilon=epsilon,
            delta=delta,
        )
