"""Which rollouts of a log are whole, and which came before: one rule for who learns from it and who counts it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from millstream.wires.kafka.notes import Life, Note

P = TypeVar("P")
_MOST_LIVES = 4096
_MOST_APART = 1024
_MOST_UNFINISHED = 64


@dataclass(slots=True)
class _Reached:
    """How far one life is."""

    last: int = -1
    apart: dict[int, None] = field(default_factory=dict)
    """Sequences beyond the last that are known too. A refused one may have come from a stranger: it closes no gap."""

    def add(self, sequence: int) -> None:
        """This one; with those that follow the last without a gap the last moves on."""
        if sequence > self.last:
            self.apart[sequence] = None
        while self.last + 1 in self.apart:
            self.last += 1
            del self.apart[self.last]
        while len(self.apart) > _MOST_APART:
            del self.apart[next(iter(self.apart))]

    def reach(self, sequence: int) -> None:
        """All up to this one."""
        self.last = max(self.last, sequence)
        for known in [known for known in self.apart if known <= self.last]:
            del self.apart[known]
        self.add(self.last)


class Lives:
    """Which sequences of each life are known. Those that were not heard of for longest are forgotten."""

    def __init__(self, rows: Iterable[list[int]] = ()) -> None:
        self._lives = {
            (actor, epoch): _Reached(last, dict.fromkeys(apart)) for actor, epoch, last, *apart in rows
        }  # fmt: skip

    def rows(self) -> list[list[int]]:
        """All of it in plain values: actor, epoch, last sequence, and those apart."""
        return [[*life, reached.last, *reached.apart] for life, reached in self._lives.items()]

    def __iter__(self) -> Iterator[Life]:
        return iter(self._lives)

    def last(self, life: Life) -> int:
        """Up to here all sequences of a life are known; -1 when none is."""
        reached = self._lives.get(life)
        return reached.last if reached else -1

    def know(self, note: Note) -> bool:
        """Whether the rollout of this note came before."""
        reached = self._lives.get(note.life)
        return reached is not None and (note.sequence <= reached.last or note.sequence in reached.apart)

    def reach(self, life: Life, sequence: int) -> None:
        """This one, and all before it."""
        self._touch(life).reach(sequence)

    def add(self, life: Life, sequence: int) -> None:
        """This one alone."""
        self._touch(life).add(sequence)

    def _touch(self, life: Life) -> _Reached:
        self._lives[life] = reached = self._lives.pop(life, None) or _Reached()
        while len(self._lives) > _MOST_LIVES:
            del self._lives[next(iter(self._lives))]
        return reached


@dataclass(slots=True)
class Gathered(Generic[P]):
    """The parts of a rollout that have come, and the offset of the first."""

    note: Note
    offset: int
    parts: dict[int, P] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether none is missing."""
        return len(self.parts) == self.note.parts

    def in_order(self) -> list[P]:
        """The parts as they were cut."""
        return [self.parts[index] for index in range(self.note.parts)]


class Gathering(Generic[P]):
    """The unfinished rollouts of one partition. A life sends one after the other, so it has at most one."""

    def __init__(self) -> None:
        self._lives: dict[Life, Gathered[P]] = {}
        self.incomplete = 0
        """Rollouts of which no more parts can come: their actor died while it sent them."""

    def oldest(self) -> int | None:
        """The first offset that an unfinished rollout needs."""
        return min((each.offset for each in self._lives.values()), default=None)

    def add(self, note: Note, offset: int, part: P) -> Gathered[P] | None:
        """Take a part; the rollout when it was the last."""
        there = self._lives.get(note.life)
        if there is None or there.note.sequence != note.sequence or there.note.parts != note.parts:
            self.incomplete += there is not None
            there = self._lives[note.life] = Gathered(note, offset)
        there.parts[note.part] = part
        if not there.whole:
            self._bound()
            return None
        self._forget(note.actor)
        return there

    def _forget(self, actor: int) -> None:
        """This actor has gone on, or another lives in its place."""
        gone = [life for life in self._lives if life[0] == actor]
        self.incomplete += len(gone) - 1
        for life in gone:
            del self._lives[life]

    def _bound(self) -> None:
        while len(self._lives) > _MOST_UNFINISHED:
            del self._lives[next(iter(self._lives))]
            self.incomplete += 1
