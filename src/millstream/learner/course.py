"""The course that a run has taken: which rollouts each update used or dropped, so that a learner can take it again."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from millstream.core.data import Version
from millstream.core.journal import Line, effective

Identity: TypeAlias = tuple[int, int, int]
"""Actor, epoch and sequence of a rollout."""
Refused: TypeAlias = tuple[int, int, int, int, str]
"""Actor, epoch and sequence of a rollout that was not taken, its steps, and why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one update of the journal did."""

    update: int
    used: tuple[Identity, ...]
    dropped: tuple[Identity, ...] = ()
    refused: tuple[Refused, ...] = ()
    corrected: tuple[Identity, ...] = ()
    """Those of the used ones that were too old, and were corrected."""
    weights: str | None = None
    """The hash of the weights that it led to, where it was written down."""

    @classmethod
    def of(cls, line: Line) -> Entry:
        """The same from a line of the journal."""
        used, dropped = ([_identity(each) for each in line[name]] for name in ("used", "dropped"))
        refused = tuple((*_identity(each), int(each[3]), str(each[4])) for each in line.get("refused", ()))
        corrected = tuple(_identity(each) for each in line.get("corrected", ()))
        return cls(line["update"], tuple(used), tuple(dropped), refused, corrected, line.get("weights"))

    @property
    def rollouts(self) -> list[Identity]:
        """In the order in which they are needed: as used, and those of one actor as it made them."""
        return sorted((*self.used, *self.dropped)) if self.dropped else list(self.used)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first update whose weights are not those that were written down."""

    update: int
    recorded: str
    found: str


class Course:
    """The updates that a learner still has to redo by the journal, in order. Without any it is free from the start.

    It begins after the checkpoint that the learner continues from (`begin`), or else with the first update.
    """

    def __init__(self, lines: Iterable[Line]):
        self.redone = self.compared = self.agreed = 0
        """Updates that were done again, those of them whose weights were compared, and that were the same."""
        self.difference: Difference | None = None
        self.reason: str | None = None
        """Why it was given up, if it was."""
        self.last = 0
        """The last update whose weights are those of the journal, once all is redone."""
        self.tell: Callable[[str, str], object] = lambda level, text: None
        """Who hears of it: a level and a text."""
        self._lines, self._begun = lines, False
        self._left: deque[Line] = deque()
        self._epochs: list[tuple[int, int]] = []  # from this update on, which learner made it
        self._entry: Entry | None = None
        self._wanted: deque[Identity] = deque()

    @property
    def entry(self) -> Entry | None:
        """What the next update has to do again; None once it may do as it likes."""
        if not self._begun:
            self.begin(0)
        return self._entry

    @property
    def redoing(self) -> bool:
        """Whether there is something left to redo."""
        return self.entry is not None

    @property
    def wanted(self) -> Identity | None:
        """The next rollout that must come; None when all of the entry are there, or nothing is left to redo."""
        return self._wanted[0] if self.redoing and self._wanted else None

    def begin(self, after: int) -> None:
        """Redo what comes after that update."""
        left = effective(self._left if self._begun else self._noted(self._lines), after)
        self._begun, self._lines = True, ()
        numbers = [line["update"] for line in left]
        whole = sum(number == after + 1 + index for index, number in enumerate(numbers))  # rising: the first are whole
        self._left, self.last = deque(left[:whole]), after + whole
        if whole:
            self.tell("info", f"redoing updates {after + 1} to {self.last} by the journal")
        if whole < len(left):
            self.tell("warning", f"the journal lacks update {self.last + 1}; what comes after it is not redone")
        self._open()

    def due(self, update: int) -> Entry | None:
        """What this update has to do again, if anything."""
        entry = self.entry
        if entry is not None and entry.update != update:
            self.abandon(f"the next update is {update}")
            return None
        return entry

    def came(self, identity: Identity) -> None:
        """A rollout of the entry is there; another one changes nothing."""
        if self.redoing and identity in self._wanted:
            self._wanted.remove(identity)

    def took(self) -> None:
        """The update of the entry has begun: the next one is due."""
        self._left.popleft()
        self._open()

    def done(self, entry: Entry, found: Callable[[], str]) -> None:
        """The update of this entry has ended, with weights of this hash."""
        self.redone += 1
        if entry.weights is not None:
            self._compare(entry.update, entry.weights, found())
        if entry.update == self.last and self.reason is None:
            first = self.last - self.redone + 1
            self.tell("info", f"redid updates {first} to {self.last} by the journal{self._hashes()}")

    def abandon(self, reason: str) -> None:
        """What is left cannot be redone: go on freely."""
        entry = self.entry
        if entry is None:
            return
        self.reason, self.last = reason, entry.update - 1
        self._left.clear()
        self._open()
        self.tell("warning", f"from update {entry.update} on the journal cannot be followed: {reason}; going on freely")

    def made(self, policy: Version) -> bool:
        """Whether an earlier learner's policy has weights that this one has arrived at too."""
        run = bisect_right(self._epochs, policy.number, key=lambda each: each[0])
        # a learner before the one that wrote the line may have published this number with other weights
        return policy.number <= self.last and (run == 0 or self._epochs[run - 1][1] <= policy.epoch)

    def _open(self) -> None:
        self._entry = Entry.of(self._left[0]) if self._left else None
        self._wanted = deque(self._entry.rollouts if self._entry else ())

    def _compare(self, update: int, recorded: str, found: str) -> None:
        self.compared += 1
        self.agreed += recorded == found
        if recorded != found and self.difference is None:
            self.difference = Difference(update, recorded, found)
            self.tell("warning", f"the weights after update {update} are {found[:12]}, in the journal {recorded[:12]}")

    def _hashes(self) -> str:
        return f"; {self.agreed} of {self.compared} hashes of weights agree" if self.compared else ""

    def _noted(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Remember which learner made which updates: as the lines that count, later ones replace earlier ones."""
        for line in lines:
            while self._epochs and self._epochs[-1][0] >= line["update"]:
                self._epochs.pop()
            if not self._epochs or self._epochs[-1][1] != line["epoch"]:
                self._epochs.append((line["update"], line["epoch"]))
            yield line


def _identity(words: Any) -> Identity:
    actor, epoch, sequence = words[:3]
    return int(actor), int(epoch), int(sequence)
