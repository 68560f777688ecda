"""Metrics of a run in one SQLite file, which may be read while it is written."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from millstream.core.errors import RunError, StorageError
from millstream.core.topics import Report
from millstream.telemetry.scalars import scalars as scalars_of
from millstream.telemetry.scalars import step_of

if TYPE_CHECKING:
    from sqlite3 import Connection, Cursor

T = TypeVar("T")

STORE = "metrics.sqlite"
"""The name of the file in a run's folder."""
_TABLES = """
CREATE TABLE IF NOT EXISTS names (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL);
CREATE TABLE IF NOT EXISTS scalars (
    name INTEGER NOT NULL, step INTEGER NOT NULL, value REAL NOT NULL, at REAL NOT NULL);
CREATE INDEX IF NOT EXISTS scalars_by_name ON scalars (name, step);
CREATE TABLE IF NOT EXISTS episodes (
    step INTEGER NOT NULL, actor INTEGER NOT NULL, slot INTEGER NOT NULL,
    return REAL NOT NULL, length INTEGER NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS evaluations (
    step INTEGER NOT NULL, episodes INTEGER NOT NULL, mean REAL, iqm REAL, low REAL, high REAL,
    version TEXT, returns TEXT, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS events (level TEXT NOT NULL, text TEXT NOT NULL, at REAL NOT NULL);
"""
_INSERTS = {
    "names": "INSERT INTO names (id, name) VALUES (?, ?)",
    "scalars": "INSERT INTO scalars VALUES (?, ?, ?, ?)",
    "episodes": "INSERT INTO episodes VALUES (?, ?, ?, ?, ?, ?)",
    "evaluations": "INSERT INTO evaluations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "events": "INSERT INTO events VALUES (?, ?, ?)",
}
_DENSE = 5000
"""So many updates are all kept; after that one a second is, or a long fast run would fill the disk with curves."""


class SqliteStore:
    """A sink that keeps scalars, episodes, evaluations and events; committed once a second and at events."""

    def __init__(self, path: Path | str, every: float = 1.0, rows: int = 10_000) -> None:
        self.path = Path(path)
        self.every = every
        self.rows = rows
        self._pending: dict[str, list[tuple[Any, ...]]] = {table: [] for table in _INSERTS}
        self._committed_at = float("-inf")
        self._updates = 0
        self._kept_at = float("-inf")
        with _told(self.path):
            self._connection = _open(self.path)
            self._names: dict[str, int] = dict(self._connection.execute("SELECT name, id FROM names").fetchall())

    def write(self, report: Report) -> None:
        """Remember a report; most wait in memory for the next commit."""
        kind, at = report["kind"], report["at"]
        if kind == "actor":
            self._take_episodes(report)
        elif kind == "evaluation":
            self._pending["evaluations"].append(_evaluation_row(report))
        elif kind == "event":
            self._pending["events"].append((report["level"], report["text"], at))
        elif kind == "checkpoint":
            self._pending["events"].append(("info", f"checkpoint at update {report['update']}: {report['path']}", at))
        if kind != "update" or self._keeps(at):
            self._take_scalars(report)
        waiting = sum(map(len, self._pending.values()))
        due = at - self._committed_at >= self.every or waiting >= self.rows
        if waiting and (due or kind in ("event", "evaluation", "checkpoint")):
            self.commit(at)

    def commit(self, at: float | None = None) -> None:
        """Put what waits into the file."""
        with _told(self.path), self._connection:
            for table, rows in self._pending.items():
                self._connection.executemany(_INSERTS[table], rows)
        for rows in self._pending.values():  # only now are they safe
            rows.clear()
        self._committed_at = self._committed_at if at is None else at

    def rewind(self, steps: int) -> None:
        """Forget what came after `steps`: a resumed run tells it anew."""
        self.commit()
        with _told(self.path), self._connection:
            for table in ("scalars", "episodes", "evaluations"):
                self._connection.execute(f"DELETE FROM {table} WHERE step > ?", (steps,))

    def close(self) -> None:
        """Commit, and fold the log into the one file, so that readers of a finished run leave nothing beside it."""
        import sqlite3

        try:
            self.commit()
            with contextlib.suppress(sqlite3.OperationalError):  # somebody is reading: the log stays
                self._connection.execute("PRAGMA journal_mode = DELETE")
        finally:
            self._connection.close()

    def _keeps(self, at: float) -> bool:
        self._updates += 1
        if self._updates > _DENSE and at - self._kept_at < 1.0:
            return False
        self._kept_at = at
        return True

    def _take_scalars(self, report: Report) -> None:
        step, at, pending = step_of(report), report["at"], self._pending["scalars"]
        pending.extend((self._name(name), step, value, at) for name, value in scalars_of(report).items())

    def _take_episodes(self, report: Report) -> None:
        step, actor, at = step_of(report), report["actor"], report["at"]
        rows = [(step, actor, slot, total, length, at) for slot, total, length in report["episodes"]]
        self._pending["episodes"].extend(rows)

    def _name(self, name: str) -> int:
        if name not in self._names:
            self._names[name] = max(self._names.values(), default=0) + 1
            self._pending["names"].append((self._names[name], name))
        return self._names[name]


def names(path: Path | str) -> list[str]:
    """The names under which scalars are kept."""
    return [row["name"] for row in _rows(path, "SELECT name FROM names ORDER BY name")]


def scalars(path: Path | str, name: str, points: int = 2000) -> list[dict[str, Any]]:
    """One curve: step, value, at. When there are more rows than `points`, each stands for its neighbours' mean."""
    return _rows(
        path,
        """
        SELECT max(step) AS step, avg(value) AS value, max(at) AS at FROM (
            SELECT step, value, at, ntile(:points) OVER (ORDER BY step, rowid) AS part FROM scalars
            WHERE name = (SELECT id FROM names WHERE name = :name))
        GROUP BY part ORDER BY part""",
        {"name": name, "points": points},
    )


def last(path: Path | str, name: str) -> dict[str, Any] | None:
    """Where one curve stands: step, value, at. Cheap however long the curve is."""
    query = """
        SELECT step, value, at FROM scalars WHERE name = (SELECT id FROM names WHERE name = :name)
        ORDER BY step DESC, rowid DESC LIMIT 1"""
    return next(iter(_rows(path, query, {"name": name})), None)


def latest(path: Path | str) -> dict[str, float]:
    """The last value of every scalar."""
    query = """
        SELECT names.name AS name, scalars.value AS value, max(scalars.rowid) FROM scalars
        JOIN names ON names.id = scalars.name GROUP BY names.name"""
    return {row["name"]: row["value"] for row in _rows(path, query)}


def episodes(path: Path | str, limit: int | None = None) -> list[dict[str, Any]]:
    """Training episodes in the order in which they ended; with a limit, the last ones."""
    query = "SELECT * FROM (SELECT rowid AS number, * FROM episodes ORDER BY rowid DESC LIMIT :limit) ORDER BY number"
    return _rows(path, query, {"limit": -1 if limit is None else limit})


def returns(path: Path | str) -> tuple[np.ndarray, np.ndarray]:
    """Step and return of every training episode, as arrays: a long run has millions."""
    pairs = _read(path, "SELECT step, return FROM episodes ORDER BY rowid", {}, _pairs)
    return pairs["step"], pairs["return"]


def evaluations(path: Path | str) -> list[dict[str, Any]]:
    """Evaluations, oldest first, each with its returns."""
    rows = _rows(path, "SELECT * FROM evaluations ORDER BY rowid")
    return [{**row, "version": json.loads(row["version"]), "returns": json.loads(row["returns"])} for row in rows]


def events(path: Path | str, limit: int | None = None) -> list[dict[str, Any]]:
    """What happened, oldest first; with a limit, the last ones."""
    query = "SELECT level, text, at FROM (SELECT rowid AS n, * FROM events ORDER BY rowid DESC LIMIT :limit) ORDER BY n"
    return _rows(path, query, {"limit": -1 if limit is None else limit})


def _open(path: Path) -> Connection:
    import sqlite3

    path.parent.mkdir(parents=True, exist_ok=True)
    # the recorder alone writes here, though perhaps not in the thread that built it
    connection = sqlite3.connect(path, check_same_thread=False, timeout=5.0)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.executescript(_TABLES)
    return connection


def _evaluation_row(report: Report) -> tuple[Any, ...]:
    numbers = [report[name] for name in ("episodes", "mean", "iqm", "low", "high")]
    version, returns = json.dumps(report["version"]), json.dumps(report.get("returns", []))
    return (report["steps"], *numbers, version, returns, report["at"])


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """Say a failing disk in one line; most such failures come from SQLite, some from making the folder."""
    import sqlite3

    try:
        yield
    except (sqlite3.OperationalError, OSError) as error:
        raise StorageError(f"cannot write metrics to {path}: {_cause(str(error))}") from error
    except sqlite3.DatabaseError as error:
        raise StorageError(f"{path} is damaged ({error}); move it away to start a new one") from error


def _cause(text: str) -> str:
    if "disk is full" in text or "No space left" in text:
        return "the disk is full; free some space and `mill resume` the run"
    if "readonly" in text or "Read-only" in text or "ermission" in text or "unable to open" in text:
        return f"the folder cannot be written ({text}); choose another with --folder"
    return text


def _rows(path: Path | str, query: str, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    return _read(path, query, values or {}, lambda cursor: [dict(row) for row in cursor])


def _pairs(cursor: Cursor) -> np.ndarray:
    return np.fromiter(map(tuple, cursor), np.dtype([("step", np.float64), ("return", np.float64)]))


def _read(path: Path | str, query: str, values: Mapping[str, Any], take: Callable[[Cursor], T]) -> T:
    import sqlite3

    if not Path(path).exists():
        raise RunError(f"there are no metrics at {path}; is that the folder of a run?")
    location = f"{Path(path).absolute().as_uri()}?mode=ro"
    try:
        return _fetch(location, query, values, take)
    except sqlite3.OperationalError:
        # on a read-only disk the log's index cannot be made; the file itself can still be read
        try:
            return _fetch(f"{location}&immutable=1", query, values, take)
        except sqlite3.Error as error:
            raise StorageError(f"cannot read metrics from {path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise StorageError(f"cannot read metrics from {path}: {error}") from error


def _fetch(location: str, query: str, values: Mapping[str, Any], take: Callable[[Cursor], T]) -> T:
    import sqlite3

    connection = sqlite3.connect(location, uri=True, timeout=5.0)
    try:
        connection.row_factory = sqlite3.Row
        return take(connection.execute(query, values))
    finally:
        connection.close()
