"""The only loop. Roles step in turn; when none has work, the shell rests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from millstream.core.ports import Clock, Role

_SPINS = 4
RESTS = (50e-6, 2e-3)
"""Seconds of the first rest and of the longest: each one that finds no work makes the next twice as long."""


@dataclass(slots=True)
class Usage:
    """Where the time of a shell went, in seconds."""

    busy: list[float] = field(default_factory=list)
    """Steps that did something, a role each."""
    idle: float = 0.0
    """Steps that did nothing, and rests."""

    @property
    def share(self) -> float:
        """The part of the time that was spent on work."""
        total = sum(self.busy) + self.idle
        return sum(self.busy) / total if total else 0.0


def run(
    roles: Sequence[Role],
    clock: Clock,
    stopping: Callable[[], bool],
    may_step: Callable[[Role], bool] = lambda role: True,
    usage: Usage | None = None,
    rests: tuple[float, float] = RESTS,
    rotate: bool = True,
) -> None:
    """Step the roles until `stopping`, which is asked before every step. What a role raises goes to the caller.

    `may_step` says who takes part just now: pausing is answering False for those that should wait. Without `rotate`
    the order is always the same, so that a run which resumes goes on with the one who would have been next.
    """
    usage = usage if usage is not None else Usage()
    usage.busy[:] = [0.0] * len(roles)
    turn = quiet = 0
    while not stopping():
        did = 0
        for offset in range(len(roles)):
            index = (turn + offset) % len(roles)
            if offset and stopping():
                return
            if may_step(roles[index]):
                did += _timed(roles[index], index, clock, usage)
        turn += rotate  # or the first actor takes every freed place on a full bus
        quiet = 0 if did else quiet + 1
        if quiet > _SPINS:
            _rest(quiet - _SPINS, clock, usage, rests)


def _timed(role: Role, index: int, clock: Clock, usage: Usage) -> int:
    start = clock.monotonic()
    did = role.step()
    spent = clock.monotonic() - start
    if did:
        usage.busy[index] += spent
    else:
        usage.idle += spent
    return did


def _rest(quiet: int, clock: Clock, usage: Usage, rests: tuple[float, float]) -> None:
    start = clock.monotonic()
    first, longest = rests
    clock.rest(min(first * 2 ** min(quiet - 1, 10), longest))
    usage.idle += clock.monotonic() - start
