"""How windows of steps are read from memory: all columns in one go, in C (rows.c) or in NumPy, the same bits."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from millstream.core import native
from millstream.core.data import Rollout, Stamp, Version
from millstream.replay.cut import Sequences, Windows
from millstream.replay.kinds import FRAMES
from millstream.replay.layout import FACTS, Layout, packed

PICKED = Stamp("", -1, 0, 0, Version(-1, -1), 0.0)
"""The stamp of what was put together from many rollouts."""
_REMEMBERED = 64
"""Sizes of samples whose plans are kept."""
_MANY, _FEW = 4 << 20, 1 << 20
"""Bytes from which on two threads copy, and that one of them takes at once."""
Frames = tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]


@dataclass(frozen=True)
class _Plan:
    """What a sample of one size looks like, and how it is put together."""

    dtype: np.dtype[Any]
    numbers: np.ndarray
    place: int


class Reader:
    """Reads records [parts, capacity] and rings of frames [parts, ring, ...]."""

    def __init__(self, layout: Layout, cut: Windows | Sequences, records: np.ndarray, frames: dict[str, np.ndarray]):
        self.layout, self.cut = layout, cut
        self.parts, self.capacity = records.shape
        self._records = records.reshape(-1)
        self._rings = {name: ring.reshape(-1, *ring.shape[2:]) for name, ring in frames.items()}
        self._ring = next((ring.shape[1] for ring in frames.values()), 0)
        self._plans: dict[tuple[int, int], _Plan] = {}
        self._seen = [(name, f"observations/{name}", f"finals/{name}") for name in layout.pairs]
        self._extras = [(name, f"extras/{name}") for name in layout.extras]

    def read(self, numbers: np.ndarray, parts: np.ndarray | int, steps: int) -> Rollout:
        """Windows that begin at rows with these numbers, side by side as the slots of one rollout."""
        plan = self._plans.get((steps, len(numbers))) or self._planned(steps, len(numbers))
        room = np.empty(plan.dtype.itemsize, np.uint8)
        found: Any = np.ndarray((), plan.dtype, room)
        if native.LIBRARY is not None:
            ended = self._take(plan, numbers, parts, room)
        else:
            ended = self._pick(found, numbers, parts)
        observations = {name: found[seen] for name, seen, _ in self._seen}
        finals = {name: found[final][:ended] for name, _, final in self._seen}
        carry: dict[str, np.ndarray] = {}
        final_at = found["final_at"][:ended]
        if self._rings:
            self._frames(found, final_at, parts, (observations, finals, carry))
        return Rollout(
            observations,
            finals,
            final_at,
            found["actions"],
            found["rewards"],
            found["terminated"],
            found["truncated"],
            found["first"],
            found["valid"],
            carry,
            {name: found[extra] for name, extra in self._extras},
            PICKED,
        )

    def _planned(self, steps: int, slots: int) -> _Plan:
        if len(self._plans) >= _REMEMBERED:
            self._plans.clear()
        dtype = self._sample(steps, slots)
        fields, layout = dtype.fields, self.layout
        assert fields is not None
        columns, finals = [], []
        for name in layout.record.names or ():
            place, width = layout.column(name)
            if name.startswith("now/"):
                columns.append((place, width, fields[f"observations/{name[4:]}"][1], 0))
            elif name.startswith("next/"):
                target = "extras/mask" if name == "next/mask" else f"observations/{name[5:]}"
                columns.append((place, width, fields[target][1] + width * steps * slots, 1))
                if name != "next/mask":
                    finals.append((place, width, fields[f"finals/{name[5:]}"][1], 0))
            elif name in fields and name != "valid":
                columns.append((place, width, fields[name][1], 0))
        following = layout.column("following")[0] if self.cut.steps > 1 else 0
        facts = [layout.column(name)[0] for name in ("terminated", "truncated", "valid")]
        head = [native.place(self._records.view(np.uint8)), layout.record.itemsize, self.capacity, steps, slots]
        head += [isinstance(self.cut, Sequences), *facts, following]
        head += [fields[name][1] for name in ("window", "valid", "first", "final_at")]
        body = [number for column in (*columns, *finals) for number in column]
        numbers = np.array([*head, len(columns), len(finals), *body], np.int64)
        plan = self._plans[steps, slots] = _Plan(dtype, numbers, native.place(numbers))
        return plan

    def _sample(self, steps: int, slots: int) -> np.dtype[Any]:
        """All arrays of a sample in one piece of memory."""
        kind, lead, more = self.layout.kind.columns, (steps, slots), (steps + 1, slots)
        wanted: dict[str, tuple[tuple[int, ...], str]] = {
            "window": (lead, "<i8"),
            "final_at": ((steps * slots, 2), "<i8"),
        }
        for name in self.layout.pairs:
            shape, letters = kind[f"observations/{name}"]
            wanted[f"observations/{name}"] = ((*more, *shape), letters)
            wanted[f"finals/{name}"] = ((steps * slots, *shape), letters)
        for name in ("actions", "rewards", *(f"extras/{name}" for name in self.layout.extras)):
            shape, letters = kind[name]
            wanted[name] = ((*(more if name == "extras/mask" else lead), *shape), letters)
        if self._rings:
            wanted |= {"at": (lead, "<i8"), "after": (lead, "<i8"), "back": (lead, "<i4"), "age": (lead, "|u1")}
        wanted |= {name: (more if name == "first" else lead, "|b1") for name in FACTS}
        return packed(wanted)

    def _take(self, plan: _Plan, numbers: np.ndarray, parts: np.ndarray | int, room: np.ndarray) -> int:
        numbers = np.ascontiguousarray(numbers, np.int64)
        shards = np.full(len(numbers), parts) if isinstance(parts, int) and parts else parts
        part = native.place(shards) if isinstance(shards, np.ndarray) else None
        assert native.LIBRARY is not None
        return int(native.LIBRARY.mill_rows_take(plan.place, native.place(numbers), part, native.place(room)))

    def _pick(self, found: Any, numbers: np.ndarray, parts: np.ndarray | int) -> int:
        """The same in NumPy."""
        window, valid = found["window"], found["valid"]
        self._follow(window, valid, numbers, parts)
        picked = self._records.take(window)
        for name in self.layout.record.names or ():
            if name.startswith("now/"):
                found[f"observations/{name[4:]}"][:-1] = picked[name]
            elif name.startswith("next/"):
                found["extras/mask" if name == "next/mask" else f"observations/{name[5:]}"][-1] = picked[name][-1]
            elif name in ("first", "extras/mask"):
                found[name][:-1] = picked[name]
            elif name in found.dtype.fields and name != "valid":
                found[name] = picked[name]
        found["first"][-1] = False
        ended = (picked["terminated"] | picked["truncated"]) & valid
        final_at = np.argwhere(ended)
        found["final_at"][: len(final_at)] = final_at
        for name, _, final in self._seen:
            found[final][: len(final_at)] = picked[f"next/{name}"][ended]
        return len(final_at)

    def _follow(self, window: np.ndarray, valid: np.ndarray, numbers: np.ndarray, parts: np.ndarray | int) -> None:
        """Rows [L, B] of each step, and whether they count. One that was cut short repeats its last."""
        records, base = self._records, np.asarray(parts) * self.capacity
        window[0] = numbers % self.capacity + base
        valid[0] = records["valid"][window[0]]
        for t in range(1, len(window)):
            before = records.take(window[t - 1])
            after = before["following"]
            if isinstance(self.cut, Sequences):
                window[t] = after + base
                valid[t] = records["valid"][window[t]]
                continue
            valid[t] = valid[t - 1] & ~(before["terminated"] | before["truncated"]) & (after >= 0)
            window[t] = np.where(valid[t], after + base, window[t - 1])

    def _frames(self, found: Any, final_at: np.ndarray, parts: np.ndarray | int, into: Frames) -> None:
        """Observations that are kept once [L + 1, B, ...], those of endings, and the frames before the first."""
        observations, finals, carry = into
        before, ring = self.layout.kind.stack - 1, self._ring
        at, after, age, back = found["at"], found["after"], found["age"][0], found["back"][0]
        numbers = np.empty((before + len(at) + 1, at.shape[1]), np.int64)
        numbers[before:-1], numbers[-1] = at, after[-1]
        for j in range(1, before + 1):
            numbers[before - j] = at[0] - np.minimum(age, j) * back
        base = np.asarray(parts) * ring
        places = numbers % ring + base
        endings = after[final_at[:, 0], final_at[:, 1]] % ring
        endings += np.broadcast_to(base, at.shape[1:])[final_at[:, 1]]
        for name, frames in self._rings.items():
            seen = taken(frames, places)
            observations[name], finals[name] = seen[before:], frames.take(endings, axis=0)
            if before:
                carry[f"{FRAMES}{name}"] = np.swapaxes(seen[:before], 0, 1)


def taken(frames: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Frames at these places. Many are copied by two threads, since one alone cannot use all that memory gives.

    Both take the next few in turn: a second thread that comes late, or never, only leaves more to the first.
    """
    width = frames.nbytes // max(1, len(frames))
    if places.size * width < _MANY:
        return frames.take(places, axis=0)
    found = np.empty((places.size, *frames.shape[1:]), frames.dtype)
    flat, few = places.reshape(-1), max(1, _FEW // width)
    begins = iter(range(0, len(flat), few))

    def copy() -> None:
        for low in begins:
            frames.take(flat[low : low + few], axis=0, out=found[low : low + few], mode="clip")

    other = _second().submit(copy)
    copy()
    if not other.cancel():
        other.result()
    return found.reshape(*places.shape, *frames.shape[1:])


@functools.cache
def _second() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "frames")
