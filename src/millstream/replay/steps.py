"""Steps at rest: what a table of transitions, windows or sequences is made of."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from millstream.core.data import Array, Rollout, Stamp, Version
from millstream.core.errors import ConfigError
from millstream.replay.cut import Sequences, Windows
from millstream.replay.kinds import FRAMES, Kind
from millstream.replay.memory import FACTS, Memory
from millstream.replay.pieces import Pieces


@dataclass(frozen=True)
class _Block:
    """The rows and frames of one rollout, by their numbers."""

    row: int
    rows: int
    frame: int
    frames: int


_Column = tuple[str, tuple[int, ...], np.dtype[Any]]


@dataclass(frozen=True)
class _Attached:
    """The columns of one table in the order that it writes them, and what it expects of a rollout."""

    kind: Kind
    memory: Mapping[str, np.ndarray]
    columns: dict[str, np.ndarray]
    sides: list[tuple[str, np.ndarray, np.ndarray]]
    """Observations, and those that followed."""
    facts: list[np.ndarray]
    seen: list[_Column]
    extras: list[_Column]
    action: _Column

    @classmethod
    def to(cls, memory: Memory, part: int) -> _Attached:
        """Of one part of a memory."""
        assert memory.kind is not None
        columns = memory.part(part)
        expected = {name: (shape, np.dtype(letters)) for name, (shape, letters) in memory.kind.columns.items()}
        return cls(
            memory.kind,
            memory.columns,
            columns,
            [(name, columns[f"now/{name}"], columns[f"next/{name}"]) for name in memory.pairs],
            [columns[name] for name in ("actions", "rewards", *FACTS)],
            [(name[13:], *about) for name, about in expected.items() if name.startswith("observations/")],
            [(name[7:], *about) for name, about in expected.items() if name.startswith("extras/")],
            ("actions", *expected["actions"]),
        )


class Steps:
    """Items of `cut.steps` steps among at most `capacity` steps. Rows and frames are numbered as they come."""

    def __init__(self, cut: Windows | Sequences, capacity: int, memory: Memory | None = None, part: int = 0):
        self.cut, self.capacity, self.part = cut, capacity, part
        self.memory = Memory(cut, capacity) if memory is None else memory
        self.row = self.rows = 0
        """The number of the oldest row, and how many there are."""
        self.frame = 0
        """The number of the next frame."""
        self.spotless = True
        """Whether something happened in every step that ever came."""
        self._blocks: deque[_Block] = deque()
        self._newest: dict[int, tuple[Stamp, np.ndarray]] = {}  # actor -> its last rollout: stamp and last rows
        self._pieces = Pieces(cut.steps, capacity) if isinstance(cut, Sequences) else None
        self._attached: _Attached | None = None

    @property
    def first(self) -> int:
        """The number of the oldest item."""
        return self._pieces.first if self._pieces else self.row

    @property
    def count(self) -> int:
        """How many items there are."""
        return self._pieces.count if self._pieces else self.rows

    def items_of(self, rollout: Rollout) -> int:
        """How many items a rollout gives."""
        return self._pieces.of(rollout) if self._pieces else rollout.steps * rollout.slots

    def blank(self, rollout: Rollout) -> np.ndarray:
        """Which of the items that a rollout gave are of steps in which nothing happened; sequences bear some."""
        if self._pieces or rollout.valid.all():
            return np.zeros(0, np.int64)
        self.spotless = False
        return np.flatnonzero(~rollout.valid.reshape(-1))

    def blanks(self, keys: np.ndarray) -> np.ndarray:
        """Which of these items are such."""
        if self.spotless:
            return keys[:0]
        return np.flatnonzero(~self._columns()["valid"].take(keys % self.capacity))

    def room(self, steps: int) -> int:
        """How many rollouts of so many steps of one slot, without endings, fit in before anything must leave."""
        rows = (self.capacity - self.rows) // steps
        if not self.memory.framed:
            return rows
        assert self.memory.kind is not None
        held = self.frame - self._blocks[0].frame if self._blocks else 0
        return min(rows, (self.memory.ring - held) // (steps + 1 + self.memory.kind.stack))

    def rows_at(self, keys: np.ndarray) -> np.ndarray:
        """The places in memory where items begin."""
        found: np.ndarray = (self._pieces.rows(keys) if self._pieces else keys) % self.capacity
        return found

    def read(self, keys: np.ndarray) -> list[Rollout]:
        """Items with these numbers, side by side as the slots of one rollout."""
        return [self.memory.read(self.rows_at(keys), self.part)]

    def drop(self, count: int) -> None:
        """Steps leave when the table is full, not when they were used."""
        raise ConfigError("steps leave a table when it is full: evict with Oldest()")

    def write(self, rollout: Rollout) -> int:
        """Copy it in; the oldest steps make room."""
        steps = rollout.steps * rollout.slots
        if steps > self.capacity:
            raise ConfigError(f"a rollout of {steps} steps does not fit into a table of {self.capacity}")
        if self.memory.kind is None:
            self._open(rollout)
        if not self._fits(rollout):
            misfit = self._attach().kind.differs(Kind.of(rollout))
            raise ConfigError(f"a rollout does not fit into this table: {misfit}")
        if self._pieces:
            self._pieces.check(rollout)
        self._make_room(steps, rollout)
        row = self.row + self.rows
        self._put_steps(row % self.capacity, rollout)
        if self.memory.framed:
            self._put_frames(row, rollout)
        if self.cut.steps > 1:
            self._link(row, rollout)
        self.rows += steps
        return self._pieces.write(row, rollout) if self._pieces else steps

    def snapshot(self) -> Mapping[str, Any]:
        """What is there, and no more: rows and frames from the oldest on."""
        kind = self.memory.kind
        if kind is None:
            return {}
        return {
            "columns": {name: column[self._there(name)] for name, column in self._columns().items()},
            "kind": {name: [list(shape), letters] for name, (shape, letters) in kind.columns.items()},
            "stack": kind.stack,
            "ring": self.memory.ring,
            "row": self.row,
            "rows": self.rows,
            "frame": self.frame,
            "spotless": self.spotless,
            "blocks": [[block.row, block.rows, block.frame, block.frames] for block in self._blocks],
            "newest": [[actor, stamp.epoch, stamp.sequence, last] for actor, (stamp, last) in self._newest.items()],
            "pieces": self._pieces.snapshot() if self._pieces else None,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """The same rows at the same places."""
        if not snapshot:
            return
        if self.memory.kind is None:
            columns = {name: (tuple(shape), letters) for name, (shape, letters) in snapshot["kind"].items()}
            self.memory.open(Kind(columns, snapshot["stack"]), snapshot["ring"])
        self.row, self.rows, self.frame = snapshot["row"], snapshot["rows"], snapshot["frame"]
        self.spotless = snapshot["spotless"]
        self._blocks = deque(_Block(*block) for block in snapshot["blocks"])
        self._newest = {
            actor: (Stamp("", actor, epoch, sequence, Version(-1, -1), 0.0), last)
            for actor, epoch, sequence, last in snapshot["newest"]
        }
        for name, column in self._columns().items():
            column[self._there(name)] = snapshot["columns"][name]
        if self._pieces:
            self._pieces.restore(snapshot["pieces"])

    def _there(self, name: str) -> np.ndarray:
        """Where what is there stands in a column."""
        if not name.startswith(FRAMES):
            return (self.row + np.arange(self.rows)) % self.capacity
        return np.arange(self._blocks[0].frame if self._blocks else self.frame, self.frame) % self.memory.ring

    def _open(self, rollout: Rollout) -> None:
        """The first rollout shows what others will be like."""
        remembered = [name for name in rollout.carry if not name.startswith(FRAMES)]
        if remembered:
            raise ConfigError(
                f"single steps do without what a recurrent policy remembers ({', '.join(remembered)}); "
                "keep whole rollouts"
            )
        kind = Kind.of(rollout)
        blocks = -(-self.capacity // (rollout.steps * rollout.slots)) + 1
        self.memory.open(kind, blocks * (rollout.steps + kind.stack) * rollout.slots + self.capacity // 16)

    def _columns(self) -> dict[str, np.ndarray]:
        """The part of the memory that is this table's."""
        return self._attach().columns

    def _attach(self) -> _Attached:
        """Looked for again when the memory has grown."""
        if self._attached is None or self._attached.memory is not self.memory.columns:
            self._attached = _Attached.to(self.memory, self.part)
        return self._attached

    def _fits(self, rollout: Rollout) -> bool:
        """Whether it is of the kind that this table holds; told before anything is written."""
        attached = self._attach()
        for group, expected in ((rollout.observations, attached.seen), (rollout.extras, attached.extras)):
            if len(group) != len(expected):
                return False
            for name, shape, dtype in expected:
                given = group.get(name)
                if given is None or given.dtype != dtype or given.shape[2:] != shape:
                    return False
        actions, (_, shape, dtype) = rollout.actions, attached.action
        if actions.dtype != dtype or actions.shape[2:] != shape or rollout.rewards.dtype != np.float32:
            return False
        stack = attached.kind.stack
        return (not rollout.carry and stack == 1) or Kind.of(rollout).stack == stack

    def _make_room(self, steps: int, rollout: Rollout) -> None:
        self._let_go(self.row + max(0, self.rows + steps - self.capacity))
        if self.memory.framed:
            ring, needed = self.memory.ring, self._frames_of(rollout)
            if needed > ring:
                raise ConfigError(f"{needed} frames of one rollout do not fit into a table of {self.capacity} steps")
            while self._blocks and self.frame + needed - self._blocks[0].frame > ring:
                oldest = self._blocks[0]
                self._let_go(oldest.row + oldest.rows)

    def _let_go(self, row: int) -> None:
        """Rows before this number are gone."""
        self.rows -= row - self.row
        self.row = row
        while self._blocks and self._blocks[0].row + self._blocks[0].rows <= row:
            self._blocks.popleft()
        if self._pieces:
            self._pieces.let_go(row)

    def _put_steps(self, at: int, rollout: Rollout) -> None:
        attached = self._attach()
        columns, sides = attached.columns, attached.sides
        actions, rewards, terminated, truncated, first, valid = attached.facts
        for name, now, after in sides:
            seen = rollout.observations[name]
            _put(now, at, seen[:-1])
            _put(after, at, seen[1:])
        _put(actions, at, rollout.actions)
        _put(rewards, at, rollout.rewards)
        _put(terminated, at, rollout.terminated)
        _put(truncated, at, rollout.truncated)
        _put(first, at, rollout.first[:-1])
        _put(valid, at, rollout.valid)
        for name, array in rollout.extras.items():
            if name == "mask":
                _put(columns["next/mask"], at, array[1:])
                array = array[:-1]
            _put(columns[f"extras/{name}"], at, array)
        if len(rollout.final_at) and sides:
            rows = (at + _places(rollout)) % self.capacity
            for name, _, after in sides:
                after[rows] = rollout.finals[name]

    def _put_frames(self, row: int, rollout: Rollout) -> None:
        assert self.memory.kind is not None
        columns, ring, stack = self._columns(), self.memory.ring, self.memory.kind.stack
        steps, slots = rollout.steps, rollout.slots
        begin = self.frame + (stack - 1) * slots
        finals = begin + (steps + 1) * slots
        for name in self.memory.framed:
            column = columns[f"{FRAMES}{name}"]
            if stack > 1:
                _put(column, self.frame % ring, np.swapaxes(rollout.carry[f"{FRAMES}{name}"], 0, 1))
            _put(column, begin % ring, rollout.observations[name])
            _put(column, finals % ring, rollout.finals[name])
        at = begin + np.arange(steps * slots)
        after = at + slots
        after[_places(rollout)] = finals + np.arange(len(rollout.final_at))
        told = {"at": at, "after": after, "back": np.full(steps * slots, slots, np.int32), "age": _ages(rollout, stack)}
        for name, values in told.items():
            _put(columns[name], row % self.capacity, values)
        self._blocks.append(_Block(row, steps * slots, self.frame, self._frames_of(rollout)))
        self.frame += self._blocks[-1].frames

    def _frames_of(self, rollout: Rollout) -> int:
        assert self.memory.kind is not None
        return (rollout.steps + self.memory.kind.stack) * rollout.slots + len(rollout.final_at)

    def _link(self, row: int, rollout: Rollout) -> None:
        """Each row knows the one that follows it in its slot, in the next rollout of its actor too."""
        slots, stamp, following = rollout.slots, rollout.stamp, self._columns()["following"]
        numbers = row + np.arange(rollout.steps * slots)
        after = (numbers + slots) % self.capacity
        after[-slots:] = -1
        _put(following, row % self.capacity, after)
        before, last = self._newest.get(stamp.actor, (None, numbers[:0]))
        if before and before.sequence + 1 == stamp.sequence and before.epoch <= stamp.epoch and len(last) == slots:
            # an actor that was started anew begins with a fresh episode, one that was resumed goes on
            kept = (last >= self.row) & ~rollout.first[0]
            following[last[kept] % self.capacity] = numbers[:slots][kept] % self.capacity
        self._newest[stamp.actor] = (stamp, numbers[-slots:])


def _places(rollout: Rollout) -> np.ndarray:
    """Which rows of a rollout ended an episode."""
    places: np.ndarray = rollout.final_at[:, 0] * rollout.slots + rollout.final_at[:, 1]
    return places


def _ages(rollout: Rollout, stack: int) -> np.ndarray:
    """How many frames before each are of its episode, as far as stacks reach; carried ones count as such."""
    ages = np.empty((rollout.steps, rollout.slots), np.uint8)
    now = np.full(rollout.slots, stack - 1, np.uint8)
    for t in range(rollout.steps):
        now = ages[t] = np.where(rollout.first[t], 0, np.minimum(now + 1, stack - 1))
    return ages


def _put(column: np.ndarray, at: int, values: Array) -> None:
    """Steps [T, B, ...] as rows from there on, round the end."""
    values = values.reshape((-1, *column.shape[1:]))
    end = at + len(values)
    if end <= len(column):
        column[at:end] = values
    else:
        room = len(column) - at
        column[at:] = values[:room]
        column[: end - len(column)] = values[room:]
