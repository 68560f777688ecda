"""How a worker learns that it should end: its root died, or somebody sent SIGTERM."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

TERMINATED = 128 + signal.SIGTERM
"""The exit code of a worker that ended because of SIGTERM."""


class Leash:
    """Ties a worker to its root: the root alone holds the other end of the life pipe, so its end is the root's end."""

    def __init__(self, life: int | None, patience: float = 5.0) -> None:
        self._life = life
        self._patience = patience
        self._orphaned = False
        self._terminated = False

    @property
    def exit_code(self) -> int:
        """What a worker that ended without an error should answer."""
        return TERMINATED if self._terminated else 0

    def ending(self) -> bool:
        """Whether the worker should end after its step."""
        return self._orphaned or self._terminated

    def hold(self) -> None:
        """Begin to watch. Ctrl-C is for the root; SIGTERM ends the worker after its step."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_term)
        if self._life is not None:
            threading.Thread(target=self._watch, name="life", daemon=True).start()

    def let_go(self) -> None:
        """The worker's last act: end what an environment may have started, surely so when nobody else is left to."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end_group(signal.SIGKILL if self._orphaned else signal.SIGTERM)

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        self._terminated = True

    def _watch(self) -> None:
        assert self._life is not None
        with contextlib.suppress(OSError):  # a broken pipe tells the same story as its end
            while os.read(self._life, 1):
                pass
        self._orphaned = True
        time.sleep(self._patience)
        _end_group(signal.SIGKILL)
        os._exit(1)


def _end_group(number: signal.Signals) -> None:
    """Signal all that this worker started; only if it leads its group, or it would hit its neighbours."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, number)


@contextlib.contextmanager
def signals(interrupt: Callable[[str], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM drain and save. Only a main thread may listen."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        interrupt(signal.Signals(number).name)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
