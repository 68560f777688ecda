"""What became of every step: the counters of a learner, and its lines in the journal."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from millstream.core.data import Array, Version
from millstream.learner.course import Refused
from millstream.learner.sources import Taken

HASHED = 100
"""Every so many updates the journal has the hash of the weights."""


@dataclass
class Counters:
    """What the ledger shows, in environment steps."""

    updates: int = 0
    trained: int = 0
    stale: int = 0
    corrected: int = 0
    """Of the trained ones, those that were too old and were corrected."""
    samples: int = 0
    """Gradient samples: steps times epochs."""
    refused: dict[str, int] = field(default_factory=dict)
    """Steps that a wire did not take, by reason."""

    def take(self, taken: Taken) -> None:
        """An update has ended that used and dropped these."""
        self.updates += 1
        self.trained += taken.steps
        self.stale += sum(steps for _, steps in taken.dropped)

    def refuse(self, refused: Iterable[Refused]) -> None:
        """These were not taken."""
        for *_, steps, reason in refused:
            self.refused[reason] = self.refused.get(reason, 0) + steps


def is_hashed(update: int, every: int = HASHED) -> bool:
    """Whether the journal has the hash of an update's weights; the first, second, fourth, ... too, for short runs."""
    return update % every == 0 or update & (update - 1) == 0


def line(
    counters: Counters, version: Version, revision: int, taken: Taken, refused: Sequence[Refused], weights: str | None
) -> dict[str, Any]:
    """The journal's line of an update that has ended: which rollouts were used, dropped or refused, in order."""
    found: dict[str, Any] = {
        "update": version.number,
        "epoch": version.epoch,
        "used": [[*stamp.identity, steps] for stamp, steps in taken.used],
        "dropped": [[*stamp.identity, steps] for stamp, steps in taken.dropped],
        "revision": revision,
        "steps": counters.trained,
    }
    if refused:
        found["refused"] = [list(each) for each in refused]
    if taken.corrected:
        found["corrected"] = [list(stamp.identity) for stamp in taken.corrected]
    if weights is not None:
        found["weights"] = weights
    return found


def fingerprint(tensors: Mapping[str, Array]) -> str:
    """A hash that two equal policies share."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()
