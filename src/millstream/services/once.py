"""A change that is asked for twice happens once: a caller whose answer was lost may ask again.

A caller numbers its requests and has one under way at a time, so that the last answer is all there is to remember.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from millstream.core.errors import ConfigError, Fenced, MillError

T = TypeVar("T")

CALLERS = 65_536
"""How many callers are remembered; beyond it, those go first who have been silent for longest."""
_LONGEST = 200


@dataclass
class _Caller:
    turn: threading.Lock = field(default_factory=threading.Lock)
    sequence: int = 0
    answer: Any = None


class Once:
    """What each caller asked for last, and what it was answered."""

    def __init__(self, callers: int = CALLERS) -> None:
        self._limit = callers
        self._lock = threading.Lock()
        self._callers: OrderedDict[str, _Caller] = OrderedDict()

    def do(self, name: str, sequence: int, work: Callable[[], T]) -> T:
        """The answer of `work`, or the one that was given to the same request before; errors of ours are answers."""
        if not 0 < len(name) <= _LONGEST or sequence < 1:
            raise ConfigError("a change names its caller, and numbers its requests from 1 on")
        caller = self._caller(name)
        with caller.turn:  # a request that is sent again waits for the first one to end
            if sequence < caller.sequence:
                raise Fenced(
                    f"request {sequence} came after request {caller.sequence} of the same caller; it is not run"
                )
            if sequence > caller.sequence:
                caller.answer = _answer(work)
                caller.sequence = sequence
            if isinstance(caller.answer, MillError):
                raise caller.answer
            answer: T = caller.answer
            return answer

    def _caller(self, name: str) -> _Caller:
        with self._lock:
            caller = self._callers.setdefault(name, _Caller())
            self._callers.move_to_end(name)
            while len(self._callers) > self._limit:
                self._callers.popitem(last=False)
            return caller


def _answer(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except MillError as error:
        return error.with_traceback(None)  # it is kept for long, and would keep every frame with it
