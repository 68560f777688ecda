"""Training episodes as CSV, one line each, in the columns that people's scripts read."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from millstream.core.files import storage_error
from millstream.core.topics import Report
from millstream.telemetry.scalars import step_of

EPISODES = "episodes.csv"
"""The name of the file in a run's folder."""
COLUMNS = ("r", "l", "t", "step", "actor", "slot")
"""Return, length, seconds since the start, environment steps made until then, and who played it."""


class EpisodesCsv:
    """A sink that appends each training episode to a CSV file."""

    def __init__(self, path: Path | str, started_at: float, rewind_to: int | None = None) -> None:
        self.path = Path(path)
        self.started_at = started_at
        self._flushed_at = float("-inf")
        with _told(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if rewind_to is not None and self.path.exists():
                _rewind(self.path, rewind_to)
            self._file: TextIO = self.path.open("a", newline="", encoding="utf-8")
            if self._file.tell() == 0:
                self._file.write(",".join(COLUMNS) + "\n")
                self._file.flush()

    def write(self, report: Report) -> None:
        """Append the episodes of an actor's report; other reports only let time pass."""
        at = report["at"]
        with _told(self.path):
            if report["kind"] == "actor" and report["episodes"]:
                seconds, step, actor = f"{at - self.started_at:.3f}", step_of(report), report["actor"]
                lines = [f"{r:.6g},{n},{seconds},{step},{actor},{slot}\n" for slot, r, n in report["episodes"]]
                self._file.write("".join(lines))
            if at - self._flushed_at >= 1.0:
                self._file.flush()
                self._flushed_at = at

    def close(self) -> None:
        """Write the rest and let go."""
        with _told(self.path):
            self._file.close()


def _rewind(path: Path, steps: int) -> None:
    """Drop what a resumed run will tell anew, and a last line that was cut when the run was killed."""
    with path.open(newline="", encoding="utf-8") as file:
        kept = [row for row in csv.DictReader(file) if (row["slot"] or "").isdigit() and int(row["step"]) <= steps]
    part = path.with_suffix(".part")
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(kept)
    part.replace(path)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(error, path) from error
