"""Numbers and curves in the fewest characters that still mean something, for every door that shows text."""

from __future__ import annotations

import math
from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """A curve in one line of at most `width` characters."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    count = min(width, len(finite))
    parts = [finite[i * len(finite) // count : (i + 1) * len(finite) // count] for i in range(count)]
    means = [sum(part) / len(part) for part in parts]
    low, span = min(means), max(means) - min(means)
    return "".join(_BLOCKS[int((mean - low) / span * 7.999)] if span else _BLOCKS[3] for mean in means)


def number(value: float | None) -> str:
    """Three or four figures that mean something, whatever the scale."""
    if value is None or not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1:
        return f"{value:.4f}"
    if abs(value) < 1e-4 or abs(value) >= 1e6:
        return f"{value:.2e}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"


def counted(count: int, what: str) -> str:
    """1 episode, 1,000 episodes."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def brief(count: float) -> str:
    """A count in three figures: 492k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g}{letter}"
    return f"{count:.0f}"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds: 1:02:03, or 0:07."""
    hours, rest = divmod(int(max(0.0, seconds) + 0.5), 3600)
    minutes, last = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{last:02d}" if hours else f"{minutes}:{last:02d}"
