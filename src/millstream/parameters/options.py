"""Which choices of a server go together."""

from __future__ import annotations

from millstream.core.errors import ConfigError
from millstream.parameters.aggregate import Aggregate
from millstream.parameters.combine import PRIVATE
from millstream.parameters.privacy import Privacy

MODES = ("async", "sync")


def check(
    mode: str, quorum: int, aggregation: str | Aggregate, max_staleness: int | None, privacy: Privacy | None
) -> None:
    """One ConfigError that says everything wrong at once."""
    rounds = mode == "sync"
    checks = {
        f"mode is 'async' or 'sync', got {mode!r}": mode in MODES,
        f"quorum is a whole number above 0, got {quorum!r}": _whole(quorum, 1),
        f"max_staleness is None or a whole number from 0 on, got {max_staleness!r}": max_staleness is None
        or _whole(max_staleness, 0),
        "an aggregation and a quorum are for rounds, and need mode='sync'": rounds
        or (quorum == 1 and aggregation == "average"),
        "privacy is for rounds, and needs mode='sync'": rounds or privacy is None,
        f"privacy bounds what a client adds to a sum, and needs an aggregation of {PRIVATE}, got {aggregation!r}": (
            privacy is None or aggregation in PRIVATE
        ),
    }
    wrong = [text for text, holds in checks.items() if not holds]
    if wrong:
        raise ConfigError("; ".join(wrong))


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
