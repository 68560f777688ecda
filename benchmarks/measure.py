"""Sides of a row, run in turn and in processes of their own; medians, spreads and ratios."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OURS = Path(sys.executable)
PERSONAL = ("MILL_", "OMP_", "OPENBLAS_", "MKL_")
"""Variables of the person who measures that would change what is measured."""


class Failed(Exception):
    """A side did not come to its end."""


@dataclass(frozen=True)
class Side:
    """One program to measure: it prints a JSON object with what it measured."""

    name: str
    python: Path
    script: str
    arguments: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    limit: float = 900.0
    """Seconds after which it is ended, with all that it started."""

    def run(self) -> dict[str, Any]:
        """Run it once. What it measured, and when it began (before its interpreter did) and ended."""
        command = [str(self.python), str(HERE / self.script), *self.arguments]
        environ = {name: value for name, value in os.environ.items() if not name.startswith(PERSONAL)} | self.environ
        output = subprocess.PIPE
        started_at = time.time()
        with subprocess.Popen(
            command, stdout=output, stderr=output, text=True, env=environ, cwd=HERE, start_new_session=True
        ) as process:
            try:
                said, complained = process.communicate(timeout=self.limit)
            except BaseException as error:  # it takes too long, or the whole is to end
                os.killpg(process.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise Failed(f"{self.name} was ended after {self.limit:.0f} seconds") from error
                raise
        if process.returncode:
            raise Failed(f"{self.name} failed:\n{complained[-2000:]}")
        try:
            measured = json.loads(said.splitlines()[-1])
        except (IndexError, ValueError) as error:
            raise Failed(f"{self.name} ended without saying what it measured:\n{said[-2000:]}") from error
        return {"started_at": started_at, "ended_at": time.time(), **measured}


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
    """Every side once, then every side again: what disturbs the machine disturbs all of them.

    A turn that fails is told and left out; a side that never comes to its end has no results.
    """
    found: dict[str, list[dict[str, Any]]] = {side.name: [] for side in sides}
    for turn in range(repeats):
        for side in sides:
            print(f"  {side.name}, {turn + 1} of {repeats}", file=sys.stderr, flush=True)
            try:
                found[side.name].append(side.run())
            except Failed as error:
                print(f"  {error}", file=sys.stderr, flush=True)
    return found


def figure(results: Sequence[Mapping[str, Any]], key: str) -> Figure:
    """One measured number of a side."""
    if not results:
        raise Failed(f"a side whose {key} is needed never came to its end")
    return Figure(tuple(float(result[key]) for result in results))


def table(
    title: str,
    key: str,
    unit: str,
    results: Mapping[str, Sequence[Mapping[str, Any]]],
    digits: int = 0,
    more: Mapping[str, str] | None = None,
) -> str:
    """A row a side, with its ratio to each peer; the first side is ours. `more` are columns by heading: medians."""
    ours = figure(next(iter(results.values())), key)
    most = max(len(each) for each in results.values())
    headings = ["side", f"median {unit}", "spread", "ours / this", *(more or {})]
    lines = [f"### {title}", "", f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    for name, each in results.items():
        if not each:
            lines.append(f"| {name} | failed |{' - |' * (len(headings) - 2)}")
            continue
        found = figure(each, key)
        low, high = found.spread
        told = name if len(each) == most else f"{name} ({len(each)} of {most} turns)"
        cells = [told, f"{found.median:,.{digits}f}", f"{low:,.{digits}f} to {high:,.{digits}f}"]
        cells += [f"{ours.median / found.median:.2f}"]
        cells += [_cell(each, other) for other in (more or {}).values()]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(results: Sequence[Mapping[str, Any]], key: str) -> str:
    """The median of what a side says besides; a dash where it says nothing of it."""
    said = [result for result in results if result.get(key) is not None]
    if not said:
        return "-"
    median = figure(said, key).median
    return f"{median:,.0f}" if median >= 1000 else f"{median:.4g}"
