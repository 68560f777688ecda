"""Steps at rest: a row for each, a column for everything that is known of it.

Observations stand beside those that followed them. Images, and all observations where frames are stacked, are kept once,
in rings of frames, and rows say where theirs are:

    frames of one rollout   what was stacked before it | T + 1 times all slots | the last ones of episodes that ended
    a row                   at: its frame, after: the one that followed, back: how far it is to the frame before,
                            age: how many frames before it are of its episode (stacks never need more)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from millstream.core.data import Array, Rollout, Stamp, Version
from millstream.core.errors import ConfigError
from millstream.replay.cut import Sequences, Windows

PICKED = Stamp("", -1, 0, 0, Version(-1, -1), 0.0)
"""The stamp of what was put together from many rollouts."""
FRAMES = "frames/"
_FACTS = ("terminated", "truncated", "first", "valid")


@dataclass(frozen=True)
class Kind:
    """What rollouts of one kind hold: name -> shape and type of one step."""

    columns: Mapping[str, tuple[tuple[int, ...], str]]
    stack: int

    @classmethod
    def of(cls, rollout: Rollout) -> Kind:
        """The kind of a rollout."""
        arrays = {f"observations/{name}": array for name, array in rollout.observations.items()}
        arrays |= {"actions": rollout.actions, "rewards": rollout.rewards}
        arrays |= {f"extras/{name}": array for name, array in rollout.extras.items()}
        stacks = [array.shape[1] for name, array in rollout.carry.items() if name.startswith(FRAMES)]
        return cls(
            {name: (array.shape[2:], array.dtype.str) for name, array in arrays.items()}, 1 + max(stacks, default=0)
        )

    @property
    def framed(self) -> list[str]:
        """Observations that are kept once."""
        return [name for name in self.observed if self.stack > 1 or self._is_image(name)]

    @property
    def observed(self) -> list[str]:
        """The names of all observations."""
        return [name[13:] for name in self.columns if name.startswith("observations/")]

    def differs(self, other: Kind) -> str | None:
        """In what another kind does not fit."""
        for name in sorted(self.columns.keys() | other.columns.keys()):
            mine, theirs = self.columns.get(name), other.columns.get(name)
            if mine != theirs:
                return f"{name} is {_words(theirs)}, and {_words(mine)} in the table"
        return None if self.stack == other.stack else f"it stacks {other.stack} frames, the table {self.stack}"

    def _is_image(self, name: str) -> bool:
        shape, letters = self.columns[f"observations/{name}"]
        return letters == "|u1" and len(shape) in (2, 3)


@dataclass(frozen=True)
class _Block:
    """The rows and frames of one rollout, by their numbers."""

    row: int
    rows: int
    frame: int
    frames: int


class Steps:
    """Items of `cut.steps` steps among at most `capacity` steps. The first rollout shows what memory they need."""

    def __init__(self, cut: Windows | Sequences, capacity: int):
        self.cut, self.capacity = cut, capacity
        self.row = self.rows = 0
        """The number of the oldest row, and how many there are."""
        self.frame = 0
        """The number of the next frame."""
        self.columns: dict[str, np.ndarray] = {}
        self._kind: Kind | None = None
        self._pairs: list[str] = []
        self._framed: list[str] = []
        self._blocks: deque[_Block] = deque()
        self._newest: dict[
            int, tuple[Stamp, np.ndarray]
        ] = {}  # actor -> the stamp and the last rows of its last rollout
        self._spotless = True
        self._pieces = _Pieces(cut.steps, capacity) if isinstance(cut, Sequences) else None

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

    def write(self, rollout: Rollout) -> int:
        """Copy it in; the oldest steps make room."""
        if self._kind is None:
            self._open(rollout)
        steps = rollout.steps * rollout.slots
        if steps > self.capacity:
            raise ConfigError(f"a rollout of {steps} steps does not fit into a table of {self.capacity}")
        if not self._fits(rollout):
            raise ConfigError(f"a rollout does not fit into this table: {self._kind.differs(Kind.of(rollout))}")
        self._make_room(steps, rollout)
        row = self.row + self.rows
        self._put_steps(row % self.capacity, rollout)
        if self._framed:
            self._put_frames(row, rollout)
        if self.cut.steps > 1:
            self._link(row, rollout)
        self.rows += steps
        return self._pieces.write(row, rollout) if self._pieces else steps

    def blank(self, rollout: Rollout) -> np.ndarray:
        """Which of the items that a rollout gave are of steps in which nothing happened; sequences bear some."""
        if self._pieces or rollout.valid.all():
            return np.zeros(0, np.int64)
        self._spotless = False
        return np.flatnonzero(~rollout.valid.reshape(-1))

    def blanks(self, keys: np.ndarray) -> np.ndarray:
        """Which of these items are such."""
        if self._spotless:
            return keys[:0]
        return np.flatnonzero(~self.columns["valid"].take(keys % self.capacity))

    def drop(self, count: int) -> None:
        """Let the oldest items go."""
        raise ConfigError("steps leave a table when it is full, not when they were used: evict with Oldest()")

    def read(self, keys: np.ndarray) -> list[Rollout]:
        """Items with these numbers, side by side as the slots of one rollout."""
        rows = (self._pieces.rows(keys) if self._pieces else keys) % self.capacity
        window, valid = self._window(rows)
        columns, flat = self.columns, window.reshape(-1)
        facts = {name: columns[name].take(flat).reshape(window.shape) for name in _FACTS[:3]}
        ended = (facts["terminated"] | facts["truncated"]) & valid
        end = np.zeros((1, window.shape[1]), bool)
        observations, finals, carry = self._observed(window, ended)
        extras = {name[7:]: self._steps(name, window) for name in columns if name.startswith("extras/")}
        if "mask" in extras:
            extras["mask"] = np.concatenate([extras["mask"], columns["next/mask"].take(window[-1:], axis=0)])
        return [
            Rollout(
                observations=observations,
                finals=finals,
                final_at=np.argwhere(ended),
                actions=self._steps("actions", window),
                rewards=self._steps("rewards", window),
                terminated=facts["terminated"],
                truncated=facts["truncated"],
                first=np.concatenate([facts["first"], end]),
                valid=valid,
                carry=carry,
                extras=extras,
                stamp=PICKED,
            )
        ]

    def snapshot(self) -> Mapping[str, Any]:
        """What is there, and no more: rows and frames from the oldest on."""
        if self._kind is None:
            return {}
        rows, frames = self._rows_there(), self._frames_there()
        columns = {
            name: column[(frames if name.startswith(FRAMES) else rows) % len(column)]
            for name, column in self.columns.items()
        }
        return {
            "columns": columns,
            "kind": {name: [list(shape), letters] for name, (shape, letters) in self._kind.columns.items()},
            "stack": self._kind.stack,
            "row": self.row,
            "rows": self.rows,
            "frame": self.frame,
            "ring": self._ring,
            "spotless": self._spotless,
            "blocks": [[block.row, block.rows, block.frame, block.frames] for block in self._blocks],
            "newest": [[actor, stamp.epoch, stamp.sequence, last] for actor, (stamp, last) in self._newest.items()],
            "pieces": self._pieces.snapshot() if self._pieces else None,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """The same rows at the same places."""
        if not snapshot:
            return
        kind = Kind(
            {name: (tuple(shape), letters) for name, (shape, letters) in snapshot["kind"].items()}, snapshot["stack"]
        )
        self._take_memory(kind, snapshot["ring"])
        self.row, self.rows, self.frame = snapshot["row"], snapshot["rows"], snapshot["frame"]
        self._spotless = snapshot["spotless"]
        self._blocks = deque(_Block(*block) for block in snapshot["blocks"])
        self._newest = {
            actor: (Stamp("", actor, epoch, sequence, Version(-1, -1), 0.0), last)
            for actor, epoch, sequence, last in snapshot["newest"]
        }
        rows, frames = self._rows_there(), self._frames_there()
        for name, column in self.columns.items():
            column[(frames if name.startswith(FRAMES) else rows) % len(column)] = snapshot["columns"][name]
        if self._pieces:
            self._pieces.restore(snapshot["pieces"])

    def _rows_there(self) -> np.ndarray:
        return self.row + np.arange(self.rows)

    def _frames_there(self) -> np.ndarray:
        return np.arange(self._blocks[0].frame if self._blocks else self.frame, self.frame)

    # --- writing -----------------------------------------------------------------------------------------------------

    def _open(self, rollout: Rollout) -> None:
        """The first rollout shows what others will be like."""
        remembered = [name for name in rollout.carry if not name.startswith(FRAMES)]
        if remembered:
            raise ConfigError(
                f"single steps do without what a recurrent policy remembers ({', '.join(remembered)}); keep whole rollouts"
            )
        kind = Kind.of(rollout)
        blocks = -(-self.capacity // (rollout.steps * rollout.slots)) + 1
        self._take_memory(kind, blocks * (rollout.steps + kind.stack) * rollout.slots + self.capacity // 16)

    def _take_memory(self, kind: Kind, ring: int) -> None:
        """For rollouts of this kind, and so many frames."""
        self._kind, self._ring = kind, ring
        self._framed = kind.framed
        self._pairs = [name for name in kind.observed if name not in self._framed]
        wanted = {name: each for name, each in kind.columns.items() if not name.startswith("observations/")}
        for name in self._pairs:
            wanted[f"now/{name}"] = wanted[f"next/{name}"] = kind.columns[f"observations/{name}"]
        wanted |= dict.fromkeys(_FACTS, ((), "|b1"))
        if "extras/mask" in wanted:
            wanted["next/mask"] = wanted["extras/mask"]
        if self.cut.steps > 1:
            wanted["following"] = ((), "<i8")
        if self._framed:
            wanted |= {"at": ((), "<i8"), "after": ((), "<i8"), "back": ((), "<i4"), "age": ((), "|u1")}
        columns = {name: ((self.capacity, *shape), letters) for name, (shape, letters) in wanted.items()}
        for name in self._framed:
            shape, letters = kind.columns[f"observations/{name}"]
            columns[f"{FRAMES}{name}"] = ((ring, *shape), letters)
        self.columns = {name: np.zeros(shape, letters) for name, (shape, letters) in columns.items()}
        expected = [(name, shape, np.dtype(letters)) for name, (shape, letters) in kind.columns.items()]
        self._seen = [(name[13:], *about) for name, *about in expected if name.startswith("observations/")]
        self._extras = [(name[7:], *about) for name, *about in expected if name.startswith("extras/")]
        (self._action,) = (each for each in expected if each[0] == "actions")
        self._facts = [self.columns[name] for name in ("actions", "rewards", *_FACTS)]
        self._sides = [(name, self.columns[f"now/{name}"], self.columns[f"next/{name}"]) for name in self._pairs]

    def _fits(self, rollout: Rollout) -> bool:
        """Whether it is of the kind that this table holds; told before anything is written."""
        assert self._kind is not None
        for group, expected in ((rollout.observations, self._seen), (rollout.extras, self._extras)):
            if len(group) != len(expected):
                return False
            for name, shape, dtype in expected:
                given = group.get(name)
                if given is None or given.dtype != dtype or given.shape[2:] != shape:
                    return False
        actions, (_, shape, dtype) = rollout.actions, self._action
        if actions.dtype != dtype or actions.shape[2:] != shape or rollout.rewards.dtype != np.float32:
            return False
        return (not rollout.carry and self._kind.stack == 1) or Kind.of(rollout).stack == self._kind.stack

    def _make_room(self, steps: int, rollout: Rollout) -> None:
        self._let_go(self.row + max(0, self.rows + steps - self.capacity))
        if self._framed:
            ring, needed = self._ring, self._frames_of(rollout)
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
        for name, now, after in self._sides:
            seen = rollout.observations[name]
            _put(now, at, seen[:-1])
            _put(after, at, seen[1:])
        actions, rewards, terminated, truncated, first, valid = self._facts
        _put(actions, at, rollout.actions)
        _put(rewards, at, rollout.rewards)
        _put(terminated, at, rollout.terminated)
        _put(truncated, at, rollout.truncated)
        _put(first, at, rollout.first[:-1])
        _put(valid, at, rollout.valid)
        for name, array in rollout.extras.items():
            if name == "mask":
                _put(self.columns["next/mask"], at, array[1:])
                array = array[:-1]
            _put(self.columns[f"extras/{name}"], at, array)
        if len(rollout.final_at) and self._sides:
            rows = (at + self._places(rollout)) % self.capacity
            for name, _, after in self._sides:
                after[rows] = rollout.finals[name]

    def _put_frames(self, row: int, rollout: Rollout) -> None:
        assert self._kind is not None
        steps, slots, stack = rollout.steps, rollout.slots, self._kind.stack
        begin = self.frame + (stack - 1) * slots
        finals = begin + (steps + 1) * slots
        for name in self._framed:
            ring = f"{FRAMES}{name}"
            size = len(self.columns[ring])
            if stack > 1:
                _put(self.columns[ring], self.frame % size, np.swapaxes(rollout.carry[ring], 0, 1))
            _put(self.columns[ring], begin % size, rollout.observations[name])
            _put(self.columns[ring], finals % size, rollout.finals[name])
        at = begin + np.arange(steps * slots)
        after = at + slots
        after[self._places(rollout)] = finals + np.arange(len(rollout.final_at))
        age = np.empty((steps, slots), np.uint8)
        now = np.full(slots, stack - 1, np.uint8)
        for t in range(steps):
            now = age[t] = np.where(rollout.first[t], 0, np.minimum(now + 1, stack - 1))
        _put(self.columns["at"], row % self.capacity, at)
        _put(self.columns["after"], row % self.capacity, after)
        _put(self.columns["back"], row % self.capacity, np.full(steps * slots, slots, np.int32))
        _put(self.columns["age"], row % self.capacity, age)
        self._blocks.append(_Block(row, steps * slots, self.frame, self._frames_of(rollout)))
        self.frame += self._blocks[-1].frames

    def _frames_of(self, rollout: Rollout) -> int:
        assert self._kind is not None
        return (rollout.steps + self._kind.stack) * rollout.slots + len(rollout.final_at)

    def _link(self, row: int, rollout: Rollout) -> None:
        """Each row knows the one that follows it in its slot, in the next rollout of its actor too."""
        slots, stamp, following = rollout.slots, rollout.stamp, self.columns["following"]
        numbers = row + np.arange(rollout.steps * slots)
        after = (numbers + slots) % self.capacity
        after[-slots:] = -1
        _put(self.columns["following"], row % self.capacity, after)
        before, last = self._newest.get(stamp.actor, (None, numbers[:0]))
        if before and (before.epoch, before.sequence + 1) == (stamp.epoch, stamp.sequence) and len(last) == slots:
            kept = last >= self.row
            following[last[kept] % self.capacity] = numbers[:slots][kept] % self.capacity
        self._newest[stamp.actor] = (stamp, numbers[-slots:])

    def _places(self, rollout: Rollout) -> np.ndarray:
        """Which of its rows ended an episode."""
        places: np.ndarray = rollout.final_at[:, 0] * rollout.slots + rollout.final_at[:, 1]
        return places

    # --- reading -----------------------------------------------------------------------------------------------------

    def _window(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows [L, B] of each step, and whether they count. One that was cut short repeats its last."""
        columns, length = self.columns, self.cut.steps
        if length == 1:
            return rows[None], columns["valid"].take(rows)[None]
        window, valid = np.empty((length, len(rows)), np.int64), np.empty((length, len(rows)), bool)
        window[0], valid[0] = rows, columns["valid"].take(rows)
        for t in range(1, length):
            before = window[t - 1]
            after = columns["following"].take(before)
            if self._pieces:
                window[t], valid[t] = after, columns["valid"].take(after)
                continue
            over = columns["terminated"].take(before) | columns["truncated"].take(before) | (after < 0)
            valid[t] = valid[t - 1] & ~over
            window[t] = np.where(valid[t], after, before)
        return window, valid

    def _steps(self, name: str, window: np.ndarray) -> np.ndarray:
        return self.columns[name].take(window, axis=0)

    def _observed(
        self, window: np.ndarray, ended: np.ndarray
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Observations [L + 1, B, ...], the last ones of episodes that ended, and the frames before the first."""
        columns, last = self.columns, window[ended]
        observations, finals, carry = {}, {}, {}
        for name in self._pairs:
            now = columns[f"now/{name}"]
            whole = np.empty((len(window) + 1, *window.shape[1:], *now.shape[1:]), now.dtype)
            now.take(window, axis=0, out=whole[:-1], mode="clip")
            columns[f"next/{name}"].take(window[-1], axis=0, out=whole[-1], mode="clip")
            observations[name], finals[name] = whole, columns[f"next/{name}"].take(last, axis=0)
        if self._framed:
            assert self._kind is not None
            before = self._kind.stack - 1
            numbers = np.empty((before + len(window) + 1, window.shape[1]), np.int64)
            numbers[before:-1] = columns["at"].take(window)
            numbers[-1] = columns["after"].take(window[-1])
            back, age = columns["back"].take(window[0]), columns["age"].take(window[0])
            for j in range(1, before + 1):
                numbers[before - j] = numbers[before] - np.minimum(age, j) * back
            for name in self._framed:
                ring = columns[f"{FRAMES}{name}"]
                seen = ring.take(numbers % len(ring), axis=0)
                observations[name] = seen[before:]
                finals[name] = ring.take(columns["after"].take(last) % len(ring), axis=0)
                if before:
                    carry[f"{FRAMES}{name}"] = np.swapaxes(seen[:before], 0, 1)
        return observations, finals, carry


class _Pieces:
    """Where sequences begin: each rollout is cut into pieces of equal length, the last of which may overlap."""

    def __init__(self, steps: int, rows: int):
        self.steps, self.first, self.count = steps, 0, 0
        self._starts = np.zeros(max(1, rows), np.int64)  # numbers of rows; no row begins two of them

    def of(self, rollout: Rollout) -> int:
        return -(-rollout.steps // self.steps) * rollout.slots

    def write(self, row: int, rollout: Rollout) -> int:
        if rollout.steps < self.steps:
            raise ConfigError(
                f"a rollout of {rollout.steps} steps holds no sequence of {self.steps}; raise actor.unroll"
            )
        begins = np.minimum(np.arange(0, rollout.steps, self.steps), rollout.steps - self.steps)
        starts = row + (begins[:, None] * rollout.slots + np.arange(rollout.slots)).reshape(-1)
        places = (self.first + self.count + np.arange(len(starts))) % len(self._starts)
        self._starts[places] = starts
        self.count += len(starts)
        return len(starts)

    def let_go(self, row: int) -> None:
        """Pieces that begin before this row are gone."""
        while self.count and self._starts[self.first % len(self._starts)] < row:
            self.first += 1
            self.count -= 1

    def snapshot(self) -> Mapping[str, Any]:
        """Where those that are there begin."""
        return {"first": self.first, "starts": self.rows(self.first + np.arange(self.count))}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """The same again."""
        self.first, self.count = snapshot["first"], len(snapshot["starts"])
        self._starts[(self.first + np.arange(self.count)) % len(self._starts)] = snapshot["starts"]

    def rows(self, keys: np.ndarray) -> np.ndarray:
        starts: np.ndarray = self._starts[keys % len(self._starts)]
        return starts


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


def _words(column: tuple[Any, str] | None) -> str:
    return "absent" if column is None else f"{np.dtype(column[1]).name}{list(column[0])}"
