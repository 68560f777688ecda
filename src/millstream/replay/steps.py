"""Steps at rest: what a table of transitions, windows or sequences is made of."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from millstream.core.data import Rollout, Stamp, Version
from millstream.core.errors import CheckpointError, ConfigError
from millstream.replay.cut import Sequences, Windows
from millstream.replay.kinds import FRAMES, Kind
from millstream.replay.memory import Memory
from millstream.replay.pieces import Pieces
from millstream.replay.writing import Writer, put

RECORDS = "records"


@dataclass(frozen=True)
class _Block:
    """The rows and frames of one rollout, by their numbers."""

    row: int
    rows: int
    frame: int
    frames: int


class Steps:
    """Items of `cut.steps` steps among at most `capacity` steps. Rows and frames are numbered as they come."""

    def __init__(self, cut: Windows | Sequences, capacity: int, memory: Memory, part: int = 0, begin: int = 0):
        self.cut, self.capacity, self.part = cut, capacity, part
        self.memory = memory
        self.row, self.rows = begin, 0
        """The number of the oldest row, and how many there are."""
        self.frame = 0
        """The number of the next frame."""
        self.spotless = True
        """Whether something happened in every step that ever came."""
        self._blank = 0  # steps of the last rollout in which nothing happened
        self._blocks: deque[_Block] = deque()
        self._newest: dict[int, tuple[Stamp, np.ndarray]] = {}  # actor -> its last rollout: stamp and last rows
        self._pieces = Pieces(cut.steps, capacity, begin) if isinstance(cut, Sequences) else None
        self._writer: Writer | None = None

    @property
    def first(self) -> int:
        """The number of the oldest item."""
        return self._pieces.first if self._pieces else self.row

    @property
    def count(self) -> int:
        """How many items there are."""
        return self._pieces.count if self._pieces else self.rows

    @property
    def next_begin(self) -> int:
        """Where another one in this place may begin, whose items no key of these names."""
        return -(-max(self.row + self.rows, self.first + self.count) // self.capacity) * self.capacity

    def items_of(self, rollout: Rollout) -> int:
        """How many items a rollout gives."""
        return self._pieces.of(rollout) if self._pieces else rollout.rewards.size

    def blank(self, rollout: Rollout) -> np.ndarray | None:
        """Which of the items that the last rollout gave are of steps in which nothing happened; sequences bear some."""
        if self._pieces or not self._blank:
            return None
        return np.flatnonzero(~rollout.valid.reshape(-1))

    def blanks(self, keys: np.ndarray) -> np.ndarray:
        """Which of these items are such."""
        if self.spotless:
            return keys[:0]
        return np.flatnonzero(~self.memory.column("valid", self.part)[keys % self.capacity])

    def room(self, steps: int) -> int:
        """How many rollouts of so many steps of one slot, without endings, fit in before anything must leave."""
        rows = (self.capacity - self.rows) // steps
        if not self.memory.frames:
            return rows
        assert self.memory.kind is not None
        held = self.frame - self._blocks[0].frame if self._blocks else 0
        return min(rows, (self.memory.ring - held) // (steps + 1 + self.memory.kind.stack))

    def rows_at(self, keys: np.ndarray) -> np.ndarray:
        """The numbers of the rows where items begin."""
        return self._pieces.rows(keys) if self._pieces else keys

    def read(self, keys: np.ndarray) -> list[Rollout]:
        """Items with these numbers, side by side as the slots of one rollout."""
        return [self.memory.read(self.rows_at(keys), self.part)]

    def drop(self, count: int) -> None:
        """Steps leave when the table is full, not when they were used."""
        raise ConfigError("steps leave a table when it is full: evict with Oldest()")

    def write(self, rollout: Rollout) -> int:
        """Copy it in; the oldest steps make room."""
        steps, slots = rollout.rewards.shape
        count = steps * slots
        if count > self.capacity:
            raise ConfigError(f"a rollout of {count} steps does not fit into a table of {self.capacity}")
        memory = self.memory
        if memory.layout is None:
            self._open(rollout)
        if self._pieces:
            self._pieces.check(rollout)
        framed = bool(memory.frames)
        needed = self._frames_of(rollout) if framed else 0
        if needed > memory.ring:
            raise ConfigError(f"{needed} frames of one rollout do not fit into a table of {self.capacity} steps")
        row = self.row + self.rows
        at = row % self.capacity
        writer = self._attach()
        self._blank = writer.write(rollout, at)
        if self._blank:
            self.spotless = False
        if self.rows + count > self.capacity:
            self._let_go(row + count - self.capacity)
        if framed:
            self._let_frames_go(needed)
            writer.write_frames(rollout, at, self.frame)
            self._blocks.append(_Block(row, count, self.frame, needed))
            self.frame += needed
        if self.cut.steps > 1:
            self._link(row, rollout)
        self.rows += count
        return self._pieces.write(row, rollout) if self._pieces else count

    def snapshot(self) -> Mapping[str, Any]:
        """What is there, and no more: rows and frames from the oldest on."""
        if self.memory.kind is None:
            return {}
        columns = {name: column[self._there(name)] for name, column in self.columns().items()}
        return {**self.outline(), "columns": columns}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """The same rows at the same places."""
        if not snapshot:
            return
        self.revive(snapshot)
        for name, column in self.columns().items():
            column[self._there(name)] = snapshot["columns"][name]

    def outline(self) -> Mapping[str, Any]:
        """All but the rows and frames themselves."""
        kind = self.memory.kind
        if kind is None:
            return {}
        return {
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

    def revive(self, outline: Mapping[str, Any]) -> None:
        """The same outline; rows and frames come afterwards."""
        if not outline:
            return
        columns = {name: (tuple(shape), letters) for name, (shape, letters) in outline["kind"].items()}
        kind = Kind(columns, outline["stack"])
        if self.memory.kind is None or self.memory.ring != outline["ring"] or self.memory.kind.differs(kind):
            self.memory.open(kind, outline["ring"])
        self.row, self.rows, self.frame = outline["row"], outline["rows"], outline["frame"]
        self.spotless = outline["spotless"]
        self._blocks = deque(_Block(*block) for block in outline["blocks"])
        self._newest = {
            actor: (Stamp("", actor, epoch, sequence, Version(-1, -1), 0.0), last)
            for actor, epoch, sequence, last in outline["newest"]
        }
        if self._pieces:
            self._pieces.restore(outline["pieces"])

    def refill(self, outline: Mapping[str, Any], row: int, rollouts: Iterable[Rollout]) -> None:
        """The same rows at the same places, from the rollouts that they came from; the first began at that row."""
        if not outline:
            return
        frame = outline["blocks"][0][2] if outline["blocks"] else outline["frame"]
        empty = {"row": row, "rows": 0, "frame": frame, "blocks": [], "newest": []}
        self.revive({**outline, **empty, "pieces": {"first": 0, "starts": np.zeros(0, np.int64)}})
        for rollout in rollouts:
            self.write(rollout)
        if (self.row + self.rows, self.frame) != (outline["row"] + outline["rows"], outline["frame"]):
            raise CheckpointError(
                f"these rollouts end with row {self.row + self.rows} and frame {self.frame}, "
                f"the table with {outline['row'] + outline['rows']} and {outline['frame']}"
            )
        self.revive(outline)  # it also knows rollouts that have left, and how items were numbered

    def columns(self) -> dict[str, np.ndarray]:
        """The part of the memory that is this table's: records as bytes, and frames."""
        if self.memory.layout is None:
            return {}
        records = self.memory.records[self.part]
        found = {RECORDS: records.view(np.uint8).reshape(len(records), -1)}
        return found | {f"{FRAMES}{name}": ring[self.part] for name, ring in self.memory.frames.items()}

    def extent(self, name: str) -> tuple[int, int]:
        """The numbers of the oldest row or frame that is there, and of the next."""
        if not name.startswith(FRAMES):
            return self.row, self.row + self.rows
        return self._blocks[0].frame if self._blocks else self.frame, self.frame

    def _there(self, name: str) -> np.ndarray:
        """Where what is there stands in a column."""
        return np.arange(*self.extent(name)) % (self.memory.ring if name.startswith(FRAMES) else self.capacity)

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

    def _attach(self) -> Writer:
        """Looked for again when the memory has grown."""
        memory = self.memory
        if self._writer is None or self._writer.whole is not memory.records:
            assert memory.layout is not None
            frames = {name: ring[self.part] for name, ring in memory.frames.items()}
            self._writer = Writer(memory.layout, memory.records, self.part, frames)
        return self._writer

    def _let_frames_go(self, needed: int) -> None:
        """Rollouts whose frames are in the way leave."""
        while self._blocks and self.frame + needed - self._blocks[0].frame > self.memory.ring:
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

    def _frames_of(self, rollout: Rollout) -> int:
        assert self.memory.kind is not None
        return (rollout.steps + self.memory.kind.stack) * rollout.slots + len(rollout.final_at)

    def _link(self, row: int, rollout: Rollout) -> None:
        """Each row knows the one that follows it in its slot, in the next rollout of its actor too."""
        slots, stamp, following = rollout.slots, rollout.stamp, self.memory.column("following", self.part)
        numbers = row + np.arange(rollout.steps * slots)
        after = (numbers + slots) % self.capacity
        after[-slots:] = -1
        put(following, row % self.capacity, after)
        before, last = self._newest.get(stamp.actor, (None, numbers[:0]))
        if before and before.sequence + 1 == stamp.sequence and before.epoch <= stamp.epoch and len(last) == slots:
            # an actor that was started anew begins with a fresh episode, one that was resumed goes on
            kept = (last >= self.row) & ~rollout.first[0]
            following[last[kept] % self.capacity] = numbers[:slots][kept] % self.capacity
        self._newest[stamp.actor] = (stamp, numbers[-slots:])
