"""How a rollout is written into memory: checked first, then all columns in one go, in C (rows.c) or in NumPy."""

from __future__ import annotations

import struct

import numpy as np

from millstream.core import native
from millstream.core.data import Array, Rollout
from millstream.core.errors import ConfigError, EnvError
from millstream.replay.kinds import FRAMES, Kind
from millstream.replay.layout import FACTS, Layout

_Column = tuple[int, int, int, int]


class Writer:
    """Writes into the records and frames of one part."""

    def __init__(self, layout: Layout, whole: np.ndarray, part: int, frames: dict[str, np.ndarray]):
        self.layout, self.whole, self.records, self.frames = layout, whole, whole[part], frames
        kind = layout.kind
        self._seen = kind.observed
        self._types = [(("observations", name), 1, *kind.columns[f"observations/{name}"]) for name in self._seen]
        self._types += [((name, ""), 0, *kind.columns[name]) for name in ("actions", "rewards")]
        self._types += [((name, ""), int(name == "first"), (), "|b1") for name in FACTS]
        self._types += [
            (("extras", name), int(name == "mask"), *kind.columns[f"extras/{name}"]) for name in layout.extras
        ]
        self._dtypes = [np.dtype(letters) for _, _, _, letters in self._types]
        self._shapes: dict[tuple[int, int], list[tuple[int, ...]]] = {}
        self._plan, self._checks = self._planned()
        most = len(self._types) + len(self._seen)
        self._begins = np.zeros(most, np.int64)  # where arrays begin, where their objects do not tell
        self._told = np.concatenate([np.zeros(6, np.int64), native.place(self._begins) + 8 * np.arange(most)])
        self._packing = struct.Struct(f"{6 + len(self._types)}q"), struct.Struct(f"{6 + most}q")
        self._places = native.place(self._plan), native.place(self._told)

    def write(self, rollout: Rollout, at: int) -> int:
        """Steps [T, B] as rows from there on, round the end; how many of them are not valid.

        What does not fit, or is not finite, is refused before anything of it is written.
        """
        steps, slots = rollout.rewards.shape
        arrays = self._fitting(rollout, steps, slots)
        ends = rollout.final_at
        if ends.shape[0]:
            arrays += self._finals(rollout)
            ends = np.ascontiguousarray(ends, np.int64)
        blank = self._call(arrays, ends, at, steps, slots) if native.LIBRARY else self._put(arrays, ends, at, steps, slots)
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

    def _planned(self) -> tuple[np.ndarray, list[int]]:
        layout = self.layout
        index = {named: i for i, (named, _, _, _) in enumerate(self._types)}
        columns: list[_Column] = []
        for name in layout.pairs:
            columns.append((*layout.column(f"now/{name}"), index["observations", name], 0))
            columns.append((*layout.column(f"next/{name}"), index["observations", name], 1))
        columns += [(*layout.column(name), index[name, ""], 0) for name in ("actions", "rewards", *FACTS)]
        for name in layout.extras:
            columns.append((*layout.column(f"extras/{name}"), index["extras", name], 0))
            if name == "mask":
                columns.append((*layout.column("next/mask"), index["extras", name], 1))
        finals = [len(index) + self._seen.index(name) for name in layout.pairs]
        last = [(*layout.column(f"next/{name}"), final, 0) for name, final in zip(layout.pairs, finals, strict=True)]
        checks: list[_Column] = []
        for i, ((group, name), lead, shape, letters) in enumerate(self._types):
            if np.dtype(letters).kind == "f" and group != "extras":
                about = np.dtype(letters).itemsize, int(np.prod(shape, dtype=np.int64))
                checks.append((i, *about, lead))
                if group == "observations":
                    checks.append((len(index) + self._seen.index(name), *about, -1))
        head = [native.place(self.records.view(np.uint8)), layout.record.itemsize, len(self.records)]
        head += [len(columns), len(checks), len(last), index["valid", ""]]
        body = [number for each in (*checks, *columns, *last) for number in each]
        return np.array([*head, *body], np.int64), [check[0] for check in checks]

    def _fitting(self, rollout: Rollout, steps: int, slots: int) -> list[np.ndarray]:
        """Its arrays in the order of the plan, if they are of the kind that is kept here."""
        observations, extras = rollout.observations, rollout.extras
        stack = self.layout.kind.stack
        if len(observations) != len(self._seen) or len(extras) != len(self.layout.extras):
            self._misfit(rollout)
        if (rollout.carry or stack > 1) and not self._stacked(rollout, slots):
            self._misfit(rollout)
        try:
            arrays = [observations[name] for name in self._seen]
            arrays += (rollout.actions, rollout.rewards, rollout.terminated, rollout.truncated, rollout.first)
            arrays.append(rollout.valid)
            if extras:
                arrays += [extras[name] for name in self.layout.extras]
        except KeyError:
            self._misfit(rollout)
        shapes = self._shapes.get((steps, slots)) or self._shaped(steps, slots)
        gaps = False
        for array, dtype, shape in zip(arrays, self._dtypes, shapes, strict=True):
            if (array.dtype is not dtype and array.dtype != dtype) or array.shape != shape:
                self._misfit(rollout)
            gaps |= not array.flags.c_contiguous
        return [np.ascontiguousarray(array) for array in arrays] if gaps else arrays

    def _stacked(self, rollout: Rollout, slots: int) -> bool:
        """Whether it brings the frames that were stacked before it."""
        kind = self.layout.kind
        if kind.stack == 1:
            return Kind.of(rollout).stack == 1
        for name in self.frames:
            shape, letters = kind.columns[f"observations/{name}"]
            before = rollout.carry.get(f"{FRAMES}{name}")
            if before is None or before.shape != (slots, kind.stack - 1, *shape) or before.dtype != np.dtype(letters):
                return False
        return True

    def _finals(self, rollout: Rollout) -> list[np.ndarray]:
        """The last observations of episodes, in the order of the plan."""
        found = [rollout.finals[name] for name in self._seen]
        for array, dtype, (_, _, shape, _) in zip(found, self._dtypes, self._types, strict=False):
            if array.dtype != dtype or array.shape != (rollout.final_at.shape[0], *shape):
                raise ConfigError(f"last observations are as others are, got {array.dtype.name}{list(array.shape)}")
        return [np.ascontiguousarray(array) for array in found]

    def _shaped(self, steps: int, slots: int) -> list[tuple[int, ...]]:
        if len(self._shapes) > 64:
            self._shapes.clear()
        shapes = self._shapes[steps, slots] = [(steps + lead, slots, *shape) for _, lead, shape, _ in self._types]
        return shapes

    def _misfit(self, rollout: Rollout) -> None:
        misfit = self.layout.kind.differs(Kind.of(rollout)) or "its arrays are not all of the same steps and slots"
        raise ConfigError(f"a rollout does not fit into this table: {misfit}")

    def _refuse(self, check: int, arrays: list[np.ndarray], rollout: Rollout) -> None:
        """Say what was wrong, and of whom."""
        stamp = rollout.stamp
        whose = f"rollout {stamp.sequence} of actor {stamp.actor}"
        if check == len(self._checks):
            raise ConfigError(f"{whose} names endings that are not among its steps; nothing of it was kept")
        index = self._checks[check]
        array = arrays[index]
        final = index >= len(self._types)
        group, name = ("finals", self._seen[index - len(self._types)]) if final else self._types[index][0]
        place = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        raise EnvError(
            f"{group}{'/' * bool(name)}{name} of {whose} is {array[place]} at {list(place)}; nothing of it was kept: "
            "find out why the environment or the policy gives such numbers (mill env check)"
        )

    def _call(self, arrays: list[np.ndarray], ends: np.ndarray, at: int, steps: int, slots: int) -> int:
        ended = ends.shape[0]
        about = steps, slots, at, ended, native.place(ends) if ended else 0, native.WRITTEN
        if native.WRITTEN:
            self._packing[ended > 0].pack_into(self._told, 0, *about, *map(id, arrays))
        else:
            self._begins[: len(arrays)] = [native.place(array) for array in arrays]
            self._told[: len(about)] = about
        assert native.LIBRARY is not None
        blank: int = native.LIBRARY.mill_rows_put(*self._places)
        return blank

    def _put(self, arrays: list[np.ndarray], ends: np.ndarray, at: int, steps: int, slots: int) -> int:
        """The same in NumPy."""
        for check, index in enumerate(self._checks):
            if index < len(arrays) and not np.isfinite(arrays[index]).all():
                return -1 - check
        if len(ends) and not ((ends >= 0) & (ends < (steps, slots))).all():
            return -1 - len(self._checks)
        names, records = [named for named, _, _, _ in self._types], self.records
        for (group, name), array in zip(names, arrays, strict=False):
            if group == "observations":
                if name in self.layout.pairs:
                    put(records[f"now/{name}"], at, array[:-1])
                    put(records[f"next/{name}"], at, array[1:])
            elif group == "extras":
                put(records[f"extras/{name}"], at, array[:steps])
                if name == "mask":
                    put(records["next/mask"], at, array[1:])
            else:
                put(records[group], at, array[:steps])
        if len(ends):
            places = (at + _rows(ends, slots)) % len(records)
            for name, final in zip(self._seen, arrays[len(names) :], strict=True):
                if name in self.layout.pairs:
                    records[f"next/{name}"][places] = final
        return int(np.count_nonzero(~arrays[names.index(("valid", ""))]))


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
