"""A server that survives its process: its file is written when something changed, and read at the next start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from millstream.core.data import NONE, Version
from millstream.core.errors import StorageError
from millstream.core.ports import Clock
from millstream.parameters.server import ParameterServer


class Checkpointing:
    """A role that saves a server which moved on, at most every so many seconds. `tell` hears of a disk that is full."""

    def __init__(
        self, server: ParameterServer, path: Path, seconds: float, clock: Clock, tell: Callable[[str], None]
    ) -> None:
        self._server, self._path, self._seconds = server, path, seconds
        self._clock, self._tell = clock, tell
        self._saved: Version = NONE
        self._due = clock.monotonic() + seconds

    def begin(self) -> None:
        """Go on from the file, where there is one.

        It is written again before anyone can see the new epoch: a second start must not begin the same one.
        """
        if self._path.exists():
            self._server.load(self._path)
            self.save()

    def step(self) -> int:
        """Save when it is time and there is something new; a disk that cannot take it is tried again later."""
        if self._clock.monotonic() < self._due:
            return 0
        self._due = self._clock.monotonic() + self._seconds
        try:
            return self.save()
        except StorageError as error:
            self._tell(str(error))
            return 0

    def save(self) -> int:
        """Save what is new; 0 when nothing is."""
        version = self._server.version
        if version == self._saved:
            return 0
        self._server.save(self._path)
        self._saved = version  # asked before: what came in between is saved the next time
        return 1
