"""Runs as plain dictionaries, read from their folders: what every door shows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from millstream.core.errors import RunError, StorageError
from millstream.core.statistics import summarise
from millstream.telemetry import store

CONFIG, RESULT = "config.json", "result.json"
_BRIEF = ("env", "algo", "topology", "seed", "steps", "seconds", "steps_per_second", "train_return", "target_reached")


def run_view(folder: Path | str) -> dict[str, Any]:
    """One run: its settings, its result when it finished, its latest numbers, evaluations and last events."""
    folder = Path(folder)
    config = _read(folder / CONFIG)
    if config is None:
        raise RunError(f"{folder} is not the folder of a run: it has no {CONFIG}")
    path = folder / store.STORE
    stored = path.exists()
    return {
        **_brief(folder, config),
        "config": config,
        "result": _read(folder / RESULT),
        "latest": store.latest(path) if stored else {},
        "evaluations": [_without_returns(row) for row in store.evaluations(path)] if stored else [],
        "events": store.events(path, limit=20) if stored else [],
    }


def runs_view(root: Path | str) -> list[dict[str, Any]]:
    """Every run below a folder in a few words, the newest first. A damaged one is shown as such, not left out."""
    configs = sorted(Path(root).glob(f"*/{CONFIG}"), key=lambda path: path.stat().st_mtime, reverse=True)
    return [_brief_or_damaged(path.parent) for path in configs]


def seeds_view(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The table of `--seeds`: a row a seed, and over the seeds the mean, IQM and interval of their evaluations."""
    rows: list[dict[str, Any]] = [
        {**{name: result.get(name) for name in _BRIEF}, "evaluation": _mean(result)} for result in results
    ]
    means = [row["evaluation"] for row in rows if row["evaluation"] is not None]
    reached = [row["target_reached"]["steps"] for row in rows if row["target_reached"]]
    return {
        "rows": rows,
        "evaluation": {"seeds": len(means), **asdict(summarise(means))} if means else None,
        "reached": len(reached),
        "steps_to_target": sum(reached) / len(reached) if reached else None,
    }


def _brief_or_damaged(folder: Path) -> dict[str, Any]:
    try:
        return _brief(folder, _read(folder / CONFIG) or {})
    except StorageError as error:
        return {"run": folder.name, "folder": str(folder), "finished": False, "damaged": str(error)}


def _brief(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    result = _read(folder / RESULT)
    known = result or {}
    brief = {name: known[name] if name in known else _setting(config, name) for name in _BRIEF}
    return {
        "run": folder.name,
        "folder": str(folder),
        "finished": result is not None,
        **brief,
        "evaluation": known.get("evaluation"),
    }


def _setting(config: Mapping[str, Any], name: str) -> Any:
    """A setting that stands at the top of the file, or as the id or name of a group."""
    value = config.get(name)
    return value.get("id", value.get("name")) if isinstance(value, Mapping) else value


def _mean(result: Mapping[str, Any]) -> float | None:
    evaluation = result.get("evaluation")
    return evaluation["mean"] if evaluation else None


def _without_returns(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "returns"}


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot read {path}: {error}") from error
