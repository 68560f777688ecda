"""The memory of a table, or of several side by side: records of steps, rings of frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from millstream.core.data import Rollout
from millstream.replay.cut import Sequences, Windows
from millstream.replay.kinds import FRAMES, Kind
from millstream.replay.layout import Layout
from millstream.replay.mapped import mapped
from millstream.replay.reading import Reader


class Memory:
    """Room for `capacity` steps in each of several parts; taken when it is known what a step looks like."""

    def __init__(self, cut: Windows | Sequences, capacity: int, parts: int = 1, folder: Path | None = None):
        self.cut, self.capacity, self.parts, self.folder = cut, capacity, parts, folder
        self.layout: Layout | None = None
        self.ring = 0
        """Frames of one part."""
        self.records: np.ndarray = np.zeros((parts, 0), np.uint8)
        """[parts, capacity] of the layout's record."""
        self.frames: dict[str, np.ndarray] = {}
        """Name -> [parts, ring, ...]."""

    @property
    def kind(self) -> Kind | None:
        """What it holds, once that is known."""
        return None if self.layout is None else self.layout.kind

    @property
    def size(self) -> int:
        """Bytes that it takes, or will once it is full."""
        return self.records.nbytes + sum(ring.nbytes for ring in self.frames.values())

    def open(self, kind: Kind, ring: int) -> None:
        """Take memory for steps of this kind, and so many frames in each part."""
        layout = Layout.of(kind, self.cut.steps > 1)
        self.ring = ring
        self.records, self.frames = self._taken(layout)
        self.layout = layout
        self.reader = Reader(layout, self.cut, self.records, self.frames)

    def resize(self, parts: int) -> None:
        """More parts or fewer; those that stay keep what they hold."""
        if self.layout is None:
            self.parts = parts
            return
        kept, before = min(parts, self.parts), self.parts
        self.parts = parts
        try:
            records, frames = self._taken(self.layout)
        except BaseException:
            self.parts = before
            raise
        records[:kept] = self.records[:kept]
        for name, ring in frames.items():
            ring[:kept] = self.frames[name][:kept]
        self.records, self.frames = records, frames
        self.reader = Reader(self.layout, self.cut, records, frames)

    def column(self, name: str, part: int) -> np.ndarray:
        """One column of one part: the same memory."""
        ring = name.startswith(FRAMES)
        found: np.ndarray = self.frames[name[len(FRAMES) :]][part] if ring else self.records[part][name]
        return found

    def read(self, numbers: np.ndarray, parts: np.ndarray | int = 0, steps: int | None = None) -> Rollout:
        """Windows that begin at rows with these numbers of these parts, side by side as the slots of one rollout."""
        return self.reader.read(numbers, parts, self.cut.steps if steps is None else steps)

    def _taken(self, layout: Layout) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        records = self._room((self.parts, self.capacity), layout.record)
        frames = {}
        for name in layout.framed:
            shape, letters = layout.kind.columns[f"observations/{name}"]
            frames[name] = self._room((self.parts, self.ring, *shape), np.dtype(letters))
        return records, frames

    def _room(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        return np.zeros(shape, dtype) if self.folder is None else mapped(self.folder, shape, dtype)

    reader: Reader
