"""What a push must say of itself, and the pushes of one round until there are enough of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from millstream.core.data import Version, words
from millstream.parameters.layout import Refusal

_MOST = 2.0**53
"""Beyond it a float no longer counts one by one."""


@dataclass(frozen=True, slots=True)
class Push:
    """One worker's word, screened."""

    worker: str
    kind: str  # "gradients" or "delta"
    version: Version
    vector: np.ndarray  # [size] float32, ours
    samples: float
    weight: float


@dataclass
class Round:
    """Open until `quorum` different workers pushed, or everyone who was drawn did."""

    quorum: int
    members: frozenset[str] | None = None
    pushes: dict[str, Push] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether nobody is waited for any more."""
        return len(self.pushes) >= (self.quorum if self.members is None else max(len(self.members), 1))

    @property
    def kind(self) -> str | None:
        """What is pushed in this round; the first push says it."""
        return next((push.kind for push in self.pushes.values()), None)

    def add(self, push: Push) -> bool:
        """Take a push; True when it replaced an earlier one of the same worker."""
        if self.members is not None and push.worker not in self.members:
            raise Refusal("round", "this worker does not take part in the open round; wait for the next")
        if self.kind not in (None, push.kind):
            raise Refusal("kind", f"the open round is one of {self.kind}, got {push.kind}; wait for the next")
        replaced = push.worker in self.pushes
        self.pushes[push.worker] = push
        return replaced

    def in_order(self) -> list[Push]:
        """By worker, so that the order of arrival changes no bit."""
        return [self.pushes[worker] for worker in sorted(self.pushes)]


def worker_name(worker: Any) -> str:
    """Who pushes."""
    if isinstance(worker, bool) or not isinstance(worker, str | int) or worker == "":
        raise Refusal("worker", f"a worker has a name or a number, got {worker!r:.200}")
    return str(worker)


def amount(cause: str, value: Any) -> float:
    """A number above zero that can be summed."""
    try:
        number = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 < number <= _MOST:
        raise Refusal(cause, f"it is a number above 0 and at most 2**53, got {value!r:.200}")
    return number


def lag(version: Any, current: Version, limit: int | None) -> int:
    """How many versions behind the current one; Refusal when that is more than the limit, or nobody can say."""
    if not isinstance(version, Version) or type(version.epoch) is not int or type(version.number) is not int:
        raise Refusal("version", f"a push says which Version it was computed on, got {version!r:.200}")
    at = f"the server is at {words(current)}: fetch the latest first"
    if version > current or version.number < 0:
        raise Refusal("version", f"there was no version {words(version)}; {at}")
    if version.epoch != current.epoch:
        raise Refusal("epoch", f"{words(version)} is of an epoch that is over; {at}")
    behind = current.number - version.number
    if limit is not None and behind > limit:
        raise Refusal("stale", f"{words(version)} is {behind} versions behind, at most {limit} are borne; {at}")
    return behind
