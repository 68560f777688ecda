"""Sides of a row, run in turn and in processes of their own; medians, spreads and ratios."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OURS = Path(sys.executable)


@dataclass(frozen=True)
class Side:
    """One program to measure: it prints a JSON object with what it measured."""

    name: str
    python: Path
    script: str
    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)

    def run(self) -> dict[str, Any]:
        """Run it once."""
        command = [str(self.python), str(HERE / self.script), *self.arguments]
        ended = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **self.environ}, cwd=HERE, check=False
        )
        if ended.returncode:
            raise RuntimeError(f"{self.name} failed:\n{ended.stderr[-2000:]}")
        return dict(json.loads(ended.stdout.splitlines()[-1]))


@dataclass(frozen=True)
class Figure:
    """A measured number over repeats."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.values), max(self.values)


def alternate(sides: Sequence[Side], repeats: int) -> dict[str, list[dict[str, Any]]]:
    """Every side once, then every side again: what disturbs the machine disturbs all of them."""
    found: dict[str, list[dict[str, Any]]] = {side.name: [] for side in sides}
    for turn in range(repeats):
        for side in sides:
            print(f"  {side.name}, {turn + 1} of {repeats}", file=sys.stderr, flush=True)
            found[side.name].append(side.run())
    return found


def figure(results: Sequence[Mapping[str, Any]], key: str) -> Figure:
    """One measured number of a side."""
    return Figure(tuple(float(result[key]) for result in results))


def table(title: str, key: str, unit: str, results: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """A row a side, with its ratio to each peer; the first side is ours."""
    figures = {name: figure(each, key) for name, each in results.items()}
    names = list(figures)
    lines = [f"### {title}", "", f"| side | median {unit} | spread | ours / this |", "|---|---|---|---|"]
    for name in names:
        low, high = figures[name].spread
        ratio = figures[names[0]].median / figures[name].median
        lines.append(f"| {name} | {figures[name].median:,.0f} | {low:,.0f} to {high:,.0f} | {ratio:.2f} |")
    return "\n".join(lines)
