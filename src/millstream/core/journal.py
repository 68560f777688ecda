"""How a journal is read: which of its lines count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

Line: TypeAlias = Mapping[str, Any]
"""What one update wrote down: at least its number, as `update`."""


def effective(lines: Iterable[Line], after: int = 0) -> list[Line]:
    """The lines that count, of updates after that one: where a run went back, what it did then replaces the rest."""
    kept: list[Line] = []
    for line in lines:
        while kept and kept[-1]["update"] >= line["update"]:
            kept.pop()
        if line["update"] > after:
            kept.append(line)
    return kept
