"""How a rollout is written into memory: checked first, then all columns in one go, in C (rows.c) or in NumPy."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from millstream.core import native
from millstream.core.data import Array, Rollout
from millstream.core.errors import ConfigError, EnvError
from millstream.replay.kinds import FRAMES, Kind
from millstream.replay.layout import FACTS, Layout

_UNLIKE = -(1 << 63)
_AXES = 4
"""Axes of a step that C knows how to compare."""


@dataclass(frozen=True)
class _Expected:
    """One array of a rollout."""

    name: str
    shape: tuple[int, ...]
    letters: str
    lead: int = 0
    """Steps beyond T; -1 for one of endings."""

    def like(self, steps: int, slots: int, ended: int) -> tuple[int, ...]:
        """Its whole shape in a rollout of this size."""
        return (ended, *self.shape) if self.lead < 0 else (steps + self.lead, slots, *self.shape)


class Writer:
    """Writes into the records and frames of one part."""

    def __init__(self, layout: Layout, whole: np.ndarray, part: int, frames: dict[str, np.ndarray]):
        self.layout, self.whole, self.records, self.frames = layout, whole, whole[part], frames
        self._seen = layout.kind.observed
        self._expected = self._expectations()
        self._index = {each.name: i for i, each in enumerate(self._expected)}
        self._checks = [
            i for i, each in enumerate(self._expected)
            if np.dtype(each.letters).kind == "f" and not each.name.startswith("extras/")
        ]  # fmt: skip
        self._dtypes = [np.dtype(each.letters) for each in self._expected]  # C knows them by their objects
        self._plan = self._planned()
        self._packing = struct.Struct(f"{2 + len(self._expected)}q")
        self._call = bytearray(self._packing.size)
        self._places = native.place(self._plan), native.place(np.frombuffer(self._call, np.uint8))

    def write(self, rollout: Rollout, at: int) -> int:
        """Steps [T, B] as rows from there on, round the end; how many of them are not valid.

        What does not fit, or is not finite, is refused before anything of it is written.
        """
        carry, kind = rollout.carry, self.layout.kind
        if (carry or kind.stack > 1) and not self._stacked(rollout):
            self._misfit(rollout)
        try:
            arrays = self._arrays(rollout)
        except KeyError:
            self._misfit(rollout)
        put = self._put if native.LIBRARY is None or not native.TOLD else self._put_in_c
        blank = put(arrays, at)
        if blank == _UNLIKE:  # of another kind, or in another order in memory
            arrays = self._tidied(arrays, rollout)
            blank = put(arrays, at)
            if blank == _UNLIKE:  # more axes than C compares
                blank = self._put(arrays, at)
        if blank < 0:
            self._refuse(-1 - blank, arrays, rollout)
        return blank

    def write_frames(self, rollout: Rollout, at: int, frame: int) -> None:
        """Frames from this number on, and for rows from there on where theirs are."""
        stack, ring = self.layout.kind.stack, len(next(iter(self.frames.values())))
        steps, slots = rollout.steps, rollout.slots
        begin = frame + (stack - 1) * slots
        finals = begin + (steps + 1) * slots
        for name, column in self.frames.items():
            if stack > 1:
                put(column, frame % ring, np.swapaxes(rollout.carry[f"{FRAMES}{name}"], 0, 1))
            put(column, begin % ring, rollout.observations[name])
            if len(rollout.final_at):
                put(column, finals % ring, rollout.finals[name])
        numbers = np.arange(begin, begin + steps * slots)
        after = numbers + slots
        after[_rows(rollout.final_at, slots)] = finals + np.arange(len(rollout.final_at))
        put(self.records["at"], at, numbers)
        put(self.records["after"], at, after)
        put(self.records["back"], at, np.full(steps * slots, slots, np.int32))
        put(self.records["age"], at, _ages(rollout, stack))

    def _expectations(self) -> list[_Expected]:
        """In the order that C knows them by."""
        kind = self.layout.kind.columns
        found = [_Expected("final_at", (2,), "<i8", -1)]
        found += [_Expected(name, *kind[name]) for name in ("actions", "rewards")]
        found += [_Expected(name, (), "|b1", int(name == "first")) for name in FACTS]
        found += [_Expected(f"observations/{name}", *kind[f"observations/{name}"], 1) for name in self._seen]
        names = [f"extras/{name}" for name in self.layout.extras]
        found += [_Expected(name, *kind[name], int(name == "extras/mask")) for name in names]
        return found + [_Expected(f"finals/{name}", *kind[f"observations/{name}"], -1) for name in self._seen]

    def _planned(self) -> np.ndarray:
        layout, index = self.layout, self._index
        columns = [(*layout.column(name), index[name], 0) for name in ("actions", "rewards", *FACTS)]
        for name in layout.pairs:
            columns.append((*layout.column(f"now/{name}"), index[f"observations/{name}"], 0))
            columns.append((*layout.column(f"next/{name}"), index[f"observations/{name}"], 1))
        for name in layout.extras:
            columns.append((*layout.column(f"extras/{name}"), index[f"extras/{name}"], 0))
            if name == "mask":
                columns.append((*layout.column("next/mask"), index["extras/mask"], 1))
        finals = [(*layout.column(f"next/{name}"), index[f"finals/{name}"], 0) for name in layout.pairs]
        checks, about = [], []
        for i, each in enumerate(self._expected):
            dtype, lengths = self._dtypes[i], (*each.shape[:_AXES], *_AXES * (0,))[:_AXES]
            about.append((id(dtype), each.lead, len(each.shape) if len(each.shape) <= _AXES else -1, *lengths))
            if i in self._checks:
                checks.append((i, dtype.itemsize, int(np.prod(each.shape, dtype=np.int64)), each.lead))
        head = [native.place(self.records.view(np.uint8)), layout.record.itemsize, len(self.records)]
        head += [len(about), len(checks), len(columns), len(finals)]
        body = [number for each in (*about, *checks, *columns, *finals) for number in each]
        return np.array([*head, *body], np.int64)

    def _arrays(self, rollout: Rollout) -> list[np.ndarray]:
        """In the order of what is expected."""
        observations, extras, finals = rollout.observations, rollout.extras, rollout.finals
        if len(observations) != len(self._seen) or len(extras) != len(self.layout.extras):
            self._misfit(rollout)
        found = [
            rollout.final_at, rollout.actions, rollout.rewards, rollout.terminated, rollout.truncated, rollout.first,
            rollout.valid,
        ]  # fmt: skip
        found += [observations[name] for name in self._seen]
        if extras:
            found += [extras[name] for name in self.layout.extras]
        found += [finals[name] for name in self._seen]
        return found

    def _stacked(self, rollout: Rollout) -> bool:
        """Whether it brings the frames that were stacked before it, and no others."""
        kind = self.layout.kind
        if kind.stack == 1:
            return Kind.of(rollout).stack == 1
        for name in self.frames:
            shape, letters = kind.columns[f"observations/{name}"]
            before = rollout.carry.get(f"{FRAMES}{name}")
            if before is None or before.shape != (rollout.slots, kind.stack - 1, *shape) or before.dtype != letters:
                return False
        return True

    def _tidied(self, arrays: list[np.ndarray], rollout: Rollout) -> list[np.ndarray]:
        """The same without gaps, if they are of the kind that is kept here."""
        arrays[0] = np.asarray(arrays[0], np.int64).reshape(-1, 2)
        if self._unlike(arrays):
            self._misfit(rollout)
        return [np.ascontiguousarray(array, array.dtype.newbyteorder("=")) for array in arrays]

    def _unlike(self, arrays: list[np.ndarray]) -> bool:
        """Whether some are not as expected; without endings, last observations do not matter."""
        ends, rewards = arrays[0], arrays[2]
        if rewards.ndim != 2:
            return True
        (steps, slots), ended = rewards.shape, len(ends)
        return any(
            array.dtype != each.letters or array.shape != each.like(steps, slots, ended)
            for array, each in zip(arrays, self._expected, strict=True)
            if ended or each.lead >= 0
        )

    def _misfit(self, rollout: Rollout) -> NoReturn:
        misfit = self.layout.kind.differs(Kind.of(rollout)) or "its arrays are not all of the same steps and slots"
        raise ConfigError(f"a rollout does not fit into this table: {misfit}")

    def _refuse(self, check: int, arrays: list[np.ndarray], rollout: Rollout) -> NoReturn:
        """Say what was wrong, and of whom."""
        whose = f"rollout {rollout.stamp.sequence} of actor {rollout.stamp.actor}"
        if check == len(self._checks):
            raise ConfigError(f"{whose} names endings that are not among its steps; nothing of it was kept")
        name, array = self._expected[self._checks[check]].name, arrays[self._checks[check]]
        place = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        raise EnvError(
            f"{name} of {whose} is {array[place]} at {list(place)}; nothing of it was kept: "
            "find out why the environment or the policy gives such numbers"
        )

    def _put_in_c(self, arrays: list[np.ndarray], at: int) -> int:
        self._packing.pack_into(self._call, 0, at, native.TOLD, *map(id, arrays))
        assert native.LIBRARY is not None
        blank: int = native.LIBRARY.mill_rows_put(*self._places)
        return blank

    def _put(self, arrays: list[np.ndarray], at: int) -> int:
        """The same in NumPy."""
        if self._unlike(arrays):
            return _UNLIKE
        ends, (steps, slots), ended = arrays[0], arrays[2].shape, len(arrays[0])
        for check, index in enumerate(self._checks):
            if not np.isfinite(arrays[index]).all():
                return -1 - check
        if ended and not ((ends >= 0) & (ends < (steps, slots))).all():
            return -1 - len(self._checks)
        named = dict(zip(self._index, arrays, strict=True))
        records, places = self.records, (at + _rows(ends, slots)) % len(self.records)
        for name in ("actions", "rewards", *FACTS, *(f"extras/{name}" for name in self.layout.extras)):
            put(records[name], at, named[name][:steps])
        if "extras/mask" in named:
            put(records["next/mask"], at, named["extras/mask"][1:])
        for name in self.layout.pairs:
            put(records[f"now/{name}"], at, named[f"observations/{name}"][:-1])
            put(records[f"next/{name}"], at, named[f"observations/{name}"][1:])
            if ended:
                records[f"next/{name}"][places] = named[f"finals/{name}"]
        return int(np.count_nonzero(~named["valid"]))


def put(column: np.ndarray, at: int, values: Array) -> None:
    """Steps [T, B, ...] as rows from there on, round the end."""
    values = values.reshape((-1, *column.shape[1:]))
    end = at + len(values)
    if end <= len(column):
        column[at:end] = values
    else:
        room = len(column) - at
        column[at:] = values[:room]
        column[: end - len(column)] = values[room:]


def _rows(ends: np.ndarray, slots: int) -> np.ndarray:
    """Which rows of a rollout ended an episode."""
    rows: np.ndarray = ends[:, 0] * slots + ends[:, 1]
    return rows


def _ages(rollout: Rollout, stack: int) -> np.ndarray:
    """How many frames before each are of its episode, as far as stacks reach; carried ones count as such."""
    if stack == 1:
        return np.zeros(rollout.rewards.shape, np.uint8)
    times = np.arange(rollout.steps)[:, None]
    opened = np.maximum.accumulate(np.where(rollout.first[:-1], times, 1 - stack), axis=0)
    return np.minimum(times - opened, stack - 1).astype(np.uint8)
