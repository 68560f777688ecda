"""One root a run, one learner a run: locks that the kernel gives back however their holder ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from millstream.core.errors import Fenced


class RunLock:
    """Held from construction to close, or to the death of the process. Children do not inherit it."""

    def __init__(self, folder: Path, what: str = "run", advice: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(folder / f"{what}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            text = f"another {what} (process {holder or 'starting'}) is at work in {folder}; stop it first"
            raise Fenced(f"{text}{f', {advice}' if advice else f': mill stop {folder.name}'}") from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Let another process have the run."""
        os.close(self._descriptor)
