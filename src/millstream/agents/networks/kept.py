"""Work arrays that are made once: nothing large is allocated while training."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Work = TypeVar("Work")


class KeptByRows(threading.local, Generic[Work]):
    """What `make` gives for a number of rows, kept for each thread."""

    def __init__(self, make: Callable[[int], Work]):
        self._make, self._kept = make, dict[int, Work]()

    def __call__(self, rows: int) -> Work:
        """Made at the first call."""
        found = self._kept.pop(rows, None)
        if found is None:
            if len(self._kept) >= 8:  # odd sizes come and go; those in use stay
                self._kept.pop(next(iter(self._kept)))
            found = self._make(rows)
        self._kept[rows] = found  # the one used last stands last
        return found
