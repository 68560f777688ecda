"""What became of the processes that environments live in."""

from __future__ import annotations

import signal
from multiprocessing.connection import wait
from typing import Any

from millstream.core.errors import EnvError, EnvLost

_KILLS = (-signal.SIGKILL, -signal.SIGTERM)


def vanished(vector: Any, id: str, error: Exception) -> EnvError:
    """Why a vector of processes broke off; the rest of it is ended, because it would wait for the dead one for ever."""
    processes = list(getattr(vector, "processes", ()))
    dead = wait([each.sentinel for each in processes], timeout=1.0) if processes else []
    codes = {slot: _code(each) for slot, each in enumerate(processes) if each.sentinel in dead}
    for each in processes:
        each.kill()
        each.join()
    if processes:
        vector.closed = True
    slot, code = next(((slot, code) for slot, code in codes.items() if code), (0, 0))
    if not code:
        return EnvError(f"{id} broke off: {type(error).__name__}: {error}")
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return (EnvLost if code in _KILLS else EnvError)(f"the process of slot {slot} of {id} {how}")


def _code(process: Any) -> int:
    """How a process ended whose pipe has closed: the kernel closes it a moment earlier."""
    process.join(1.0)
    return process.exitcode or 0
