"""Where every environment step went, counted anew from the log of experience and the learner's journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.core.journal import effective

Identity = tuple[int, int, int]
"""Actor, epoch of its life, sequence."""


@dataclass(frozen=True)
class Ledger:
    """In environment steps: published = trained + stale + refused + in flight."""

    published: int = 0
    trained: int = 0
    stale: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    """By reason."""
    in_flight: int = 0
    lost_with_actor: int = 0
    """Made, and not sent when the actor ended: never published."""
    rollouts: int = 0
    """How many were published."""
    bytes: int = 0
    """What the log holds of them."""
    unexplained: int = 0
    """Trained twice, or of another length in the journal than in the log; 0, or something is wrong."""

    @property
    def balanced(self) -> bool:
        """Whether every step is in one place."""
        return self.published == self.trained + self.stale + sum(self.refused.values()) + self.in_flight


def balance(
    entries: Iterable[Mapping[str, Any]],
    logged: Mapping[Identity, int],
    made: Mapping[tuple[int, int], int] | None = None,
    size: int = 0,
) -> Ledger:
    """Compare what is in the log (steps by identity) with what the journal says became of it.

    `made` has, for each life of an actor that is over, the steps that it told of.
    """
    used: dict[Identity, int] = {}
    stale: dict[Identity, int] = {}
    refused: dict[Identity, tuple[int, str]] = {}
    twice = 0
    for entry in effective(entries):
        twice += sum(each[3] for each in entry["used"] if _identity(each) in used)
        used |= {_identity(each): each[3] for each in entry["used"]}
        stale |= {_identity(each): each[3] for each in entry["dropped"]}
        refused |= {_identity(each): (each[3], each[4]) for each in entry.get("refused", ())}
    settled = {**{each: steps for each, (steps, _) in refused.items()}, **stale, **used}
    published = {**settled, **logged}  # what was trimmed from the log is in the journal
    in_flight = sum(steps for each, steps in published.items() if each not in settled)
    reasons: Counter[str] = Counter()
    for each, (steps, reason) in refused.items():
        reasons[reason] += steps if each not in used and each not in stale else 0
    return Ledger(
        published=sum(published.values()),
        trained=sum(used.values()),
        stale=sum(steps for each, steps in stale.items() if each not in used),
        refused=dict(reasons),
        in_flight=in_flight,
        lost_with_actor=_lost(published, made or {}),
        rollouts=len(published),
        bytes=size,
        unexplained=twice + sum(abs(settled[each] - steps) for each, steps in logged.items() if each in settled),
    )


def _lost(published: Mapping[Identity, int], made: Mapping[tuple[int, int], int]) -> int:
    sent: Counter[tuple[int, int]] = Counter()
    for (actor, epoch, _), steps in published.items():
        sent[actor, epoch] += steps
    return sum(max(0, steps - sent[life]) for life, steps in made.items())


def _identity(told: Any) -> Identity:
    actor, epoch, sequence = told[:3]
    return actor, epoch, sequence
