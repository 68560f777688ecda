"""Rollouts that a wire did not take, each counted once however often it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from millstream.learner.course import Refused


class Refusals:
    """What was refused and is not in the journal yet. Those of one life of an actor are refused in order."""

    def __init__(self, hand_over: Callable[[], Sequence[Refused]]):
        self.hand_over = hand_over
        self._waiting: list[Refused] = []
        self._last: dict[tuple[int, int], int] = {}  # actor and epoch -> the last that was counted

    def collect(self) -> None:
        """Ask the wire what it refused since the last time."""
        known = {each[:3] for each in self._waiting}
        self._waiting += [each for each in self.hand_over() if self._is_new(each) and each[:3] not in known]

    def counted(self, refused: Iterable[Refused] | None = None) -> list[Refused]:
        """All that waits, or what an earlier course counted here: from now on it is known."""
        counted = self._waiting if refused is None else list(refused)
        for actor, epoch, sequence, _, _ in counted:
            self._last[actor, epoch] = max(sequence, self._last.get((actor, epoch), sequence))
        self._waiting = [each for each in self._waiting if self._is_new(each)]
        return counted

    def snapshot(self) -> Mapping[str, Any]:
        """What waits, and what is known."""
        self.collect()
        last = [[actor, epoch, sequence] for (actor, epoch), sequence in self._last.items()]
        return {"waiting": [list(each) for each in self._waiting], "last": last}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """The same again."""
        self._last = {(actor, epoch): sequence for actor, epoch, sequence in snapshot["last"]}
        self._waiting = [
            (actor, epoch, sequence, steps, reason) for actor, epoch, sequence, steps, reason in snapshot["waiting"]
        ]

    def _is_new(self, refused: Refused) -> bool:
        actor, epoch, sequence, _, _ = refused
        return sequence > self._last.get((actor, epoch), sequence - 1)
