"""The columns of a table, or of several side by side, and how windows of steps are read from them.

Observations stand beside those that followed them. Images, and all observations where frames are stacked, are kept
once, in rings of frames, and rows say where theirs are:

    frames of one rollout   what was stacked before it | T + 1 times all slots | the last ones of episodes that ended
    a row                   at: its frame, after: the one that followed, back: how far it is to the frame before,
                            age: how many frames before it are of its episode (stacks never need more)
"""

from __future__ import annotations

import numpy as np

from millstream.core.data import Rollout, Stamp, Version
from millstream.replay.cut import Sequences, Windows
from millstream.replay.kinds import FRAMES, Kind

PICKED = Stamp("", -1, 0, 0, Version(-1, -1), 0.0)
"""The stamp of what was put together from many rollouts."""
FACTS = ("terminated", "truncated", "first", "valid")
Observed = tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]


class Memory:
    """Room for `capacity` steps in each of several parts; taken when it is known what a step looks like."""

    def __init__(self, cut: Windows | Sequences, capacity: int, parts: int = 1):
        self.cut, self.capacity, self.parts = cut, capacity, parts
        self.kind: Kind | None = None
        self.ring = 0
        """Frames of one part."""
        self.columns: dict[str, np.ndarray] = {}
        self.pairs: list[str] = []
        self.framed: list[str] = []

    def open(self, kind: Kind, ring: int) -> None:
        """Take memory for steps of this kind, and so many frames in each part."""
        self.kind, self.ring = kind, ring
        self.framed = kind.framed
        self.pairs = [name for name in kind.observed if name not in self.framed]
        self.columns = {name: self._column(name, *about) for name, about in self._wanted(kind).items()}

    def part(self, index: int) -> dict[str, np.ndarray]:
        """The columns of one part: the same memory."""
        return {name: column[index] for name, column in self.columns.items()}

    def resize(self, parts: int) -> None:
        """More parts or fewer; those that stay keep what they hold."""
        before, self.parts = self.columns, parts
        if self.kind is not None:
            self.columns = {name: self._column(name, *about) for name, about in self._wanted(self.kind).items()}
            for name, column in before.items():
                self.columns[name][: len(column)] = column[:parts]

    def read(self, rows: np.ndarray, part: np.ndarray | int = 0, steps: int | None = None) -> Rollout:
        """Windows that begin at these rows of these parts, side by side as the slots of one rollout."""
        window, valid = self._window(rows, part, self.cut.steps if steps is None else steps)
        facts = {name: self._take(name, window, part) for name in FACTS[:3]}
        ended = (facts["terminated"] | facts["truncated"]) & valid
        observations, finals, carry = self._observed(window, ended, part)
        extras = {name[7:]: self._take(name, window, part) for name in self.columns if name.startswith("extras/")}
        if "mask" in extras:
            extras["mask"] = np.concatenate([extras["mask"], self._take("next/mask", window[-1:], part)])
        return Rollout(
            observations=observations,
            finals=finals,
            final_at=np.argwhere(ended),
            actions=self._take("actions", window, part),
            rewards=self._take("rewards", window, part),
            terminated=facts["terminated"],
            truncated=facts["truncated"],
            first=np.concatenate([facts["first"], np.zeros((1, len(rows)), bool)]),
            valid=valid,
            carry=carry,
            extras=extras,
            stamp=PICKED,
        )

    def _wanted(self, kind: Kind) -> dict[str, tuple[tuple[int, ...], str]]:
        """Name -> shape and type of one row, or of one frame."""
        wanted = {name: each for name, each in kind.columns.items() if not name.startswith("observations/")}
        for name in self.pairs:
            wanted[f"now/{name}"] = wanted[f"next/{name}"] = kind.columns[f"observations/{name}"]
        wanted |= dict.fromkeys(FACTS, ((), "|b1"))
        if "extras/mask" in wanted:
            wanted["next/mask"] = wanted["extras/mask"]
        if self.cut.steps > 1:
            wanted["following"] = ((), "<i8")
        if self.framed:
            wanted |= {"at": ((), "<i8"), "after": ((), "<i8"), "back": ((), "<i4"), "age": ((), "|u1")}
        return wanted | {f"{FRAMES}{name}": kind.columns[f"observations/{name}"] for name in self.framed}

    def _column(self, name: str, shape: tuple[int, ...], letters: str) -> np.ndarray:
        rows = self.ring if name.startswith(FRAMES) else self.capacity
        return np.zeros((self.parts, rows, *shape), letters)

    def _take(self, name: str, rows: np.ndarray, part: np.ndarray | int) -> np.ndarray:
        """Rows of a column; a part is given for each of their last axis."""
        column = self.columns[name]
        flat = column.reshape(-1, *column.shape[2:])
        found: np.ndarray = flat.take(rows if self.parts == 1 else rows + part * column.shape[1], axis=0)
        return found

    def _window(self, rows: np.ndarray, part: np.ndarray | int, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows [L, B] of each step, and whether they count. One that was cut short repeats its last."""
        take = self._take
        if length == 1:
            return rows[None], take("valid", rows, part)[None]
        window, valid = np.empty((length, len(rows)), np.int64), np.empty((length, len(rows)), bool)
        window[0], valid[0] = rows, take("valid", rows, part)
        for t in range(1, length):
            before = window[t - 1]
            after = take("following", before, part)
            if isinstance(self.cut, Sequences):
                window[t], valid[t] = after, take("valid", after, part)
                continue
            over = take("terminated", before, part) | take("truncated", before, part) | (after < 0)
            valid[t] = valid[t - 1] & ~over
            window[t] = np.where(valid[t], after, before)
        return window, valid

    def _observed(self, window: np.ndarray, ended: np.ndarray, part: np.ndarray | int) -> Observed:
        """Observations [L + 1, B, ...], the last ones of episodes that ended, and the frames before the first."""
        observations, finals, carry = {}, {}, {}
        last = window[ended]
        parts = part if isinstance(part, int) else np.broadcast_to(part, window.shape)[ended]
        for name in self.pairs:
            observations[name] = np.concatenate(
                [self._take(f"now/{name}", window, part), self._take(f"next/{name}", window[-1:], part)]
            )
            finals[name] = self._take(f"next/{name}", last, parts)
        if self.framed:
            numbers, before = self._frames(window, part)
            endings = self._take("after", last, parts) % self.ring
            for name in self.framed:
                seen = self._take(f"{FRAMES}{name}", numbers % self.ring, part)
                observations[name], finals[name] = seen[before:], self._take(f"{FRAMES}{name}", endings, parts)
                if before:
                    carry[f"{FRAMES}{name}"] = np.swapaxes(seen[:before], 0, 1)
        return observations, finals, carry

    def _frames(self, window: np.ndarray, part: np.ndarray | int) -> tuple[np.ndarray, int]:
        """The numbers of all frames that windows show, and how many of them come before the first step."""
        assert self.kind is not None
        before = self.kind.stack - 1
        numbers = np.empty((before + len(window) + 1, window.shape[1]), np.int64)
        numbers[before:-1] = self._take("at", window, part)
        numbers[-1] = self._take("after", window[-1], part)
        back, age = self._take("back", window[0], part), self._take("age", window[0], part)
        for j in range(1, before + 1):
            numbers[before - j] = numbers[before] - np.minimum(age, j) * back
        return numbers, before
