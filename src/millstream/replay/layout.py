"""How a step stands in memory: one record, with all that belongs to it side by side.

Observations stand beside those that followed them. Images, and all observations where frames are stacked, are kept
once, in rings of frames, and rows say where theirs are:

    frames of one rollout   what was stacked before it | T + 1 times all slots | the last ones of episodes that ended
    a row                   at: its frame, after: the one that followed, back: how far it is to the frame before,
                            age: how many frames before it are of its episode (stacks never need more)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from millstream.replay.kinds import Kind

FACTS = ("terminated", "truncated", "first", "valid")
_ALIGN = 8


@dataclass(frozen=True)
class Layout:
    """The columns of a record, and the frames beside them."""

    kind: Kind
    record: np.dtype[Any]
    pairs: list[str]
    """Observations in the record, beside those that followed."""
    framed: list[str]
    """Observations that are kept once."""
    extras: list[str]

    @classmethod
    def of(cls, kind: Kind, linked: bool) -> Layout:
        """For steps of one kind; `linked` where a row must know the one that follows it."""
        framed = kind.framed
        pairs = [name for name in kind.observed if name not in framed]
        wanted = {name: each for name, each in kind.columns.items() if not name.startswith("observations/")}
        for name in pairs:
            wanted[f"now/{name}"] = wanted[f"next/{name}"] = kind.columns[f"observations/{name}"]
        wanted |= dict.fromkeys(FACTS, ((), "|b1"))
        if "extras/mask" in wanted:
            wanted["next/mask"] = wanted["extras/mask"]
        if linked:
            wanted["following"] = ((), "<i8")
        if framed:
            wanted |= {"at": ((), "<i8"), "after": ((), "<i8"), "back": ((), "<i4"), "age": ((), "|u1")}
        extras = [name[7:] for name in kind.columns if name.startswith("extras/")]
        return cls(kind, packed(wanted), pairs, framed, extras)

    def column(self, name: str) -> tuple[int, int]:
        """Where a column stands in a record, and how many bytes it has."""
        fields = self.record.fields
        assert fields is not None
        dtype, place = fields[name][:2]
        return int(place), dtype.itemsize


def packed(wanted: Mapping[str, tuple[tuple[int, ...], str]]) -> np.dtype[Any]:
    """A type that holds them all, in the given order, each where the processor likes it."""
    places, end = [], 0
    for shape, letters in wanted.values():
        step = np.dtype(letters).itemsize
        place = -(-end // step) * step
        places.append(place)
        end = place + step * int(np.prod(shape, dtype=np.int64))
    formats = [(letters, shape) for shape, letters in wanted.values()]
    return np.dtype({
        "names": [*wanted], "formats": formats, "offsets": places, "itemsize": -(-end // _ALIGN) * _ALIGN,
    })  # fmt: skip
