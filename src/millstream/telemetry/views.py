"""Runs as plain dictionaries, read from their folders: what every door shows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from millstream.core.errors import RunError, StorageError
from millstream.core.statistics import summarise
from millstream.telemetry import store

CONFIG, RESULT, LINEAGE = "config.json", "result.json", "lineage.json"
_BRIEF = (
    "env", "algo", "topology", "seed", "steps", "seconds", "steps_per_second", "train_return", "target_reached",
    "stopped_by",
)  # fmt: skip


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


def lineage(folder: Path | str) -> dict[str, Any] | None:
    """Of a fork: the run and the checkpoint it goes on from, its steps, and what was set anew. None for others."""
    return _read(Path(folder) / LINEAGE)


def seeds_view(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several seeds as one: the keys of a single result, as totals and means, and the single results as `runs`.

    The interval of the evaluation is over the seeds' means, because episodes of one seed are not independent.
    """
    steps, seconds = (sum(result.get(name) or 0 for result in results) for name in ("steps", "seconds"))
    judged = [result["evaluation"] for result in results if result.get("evaluation")]
    reached = [result["target_reached"] for result in results if result.get("target_reached")]
    return {
        "seeds": [result["seed"] for result in results],
        "steps": steps,
        "seconds": seconds,
        "steps_per_second": steps / seconds if seconds else None,
        "train_return": _mean(result.get("train_return") for result in results),
        "target_reached": _means(reached, ("steps", "seconds")) if len(reached) == len(results) else None,
        "reached": len(reached),
        "steps_to_target": _mean(each["steps"] for each in reached),
        "evaluation": _over_seeds(judged),
        "runs": [dict(result) for result in results],
    }


def _over_seeds(judged: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    if not judged:
        return None
    over = asdict(summarise([each["mean"] for each in judged]))
    return {**over, "episodes": sum(each.get("episodes", 0) for each in judged), "seeds": len(judged)}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _means(rows: Sequence[Mapping[str, float]], names: Sequence[str]) -> dict[str, float | None]:
    return {name: _mean(row.get(name) for row in rows) for name in names}


def _brief_or_damaged(folder: Path) -> dict[str, Any]:
    try:
        return _brief(folder, _read(folder / CONFIG) or {})
    except StorageError as error:
        return {"run": folder.name, "folder": str(folder.resolve()), "finished": False, "damaged": str(error)}


def _brief(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    result = _read(folder / RESULT)
    known = _so_far(folder / store.STORE) if result is None else result
    brief = {name: known[name] if name in known else _setting(config, name) for name in _BRIEF}
    return {
        "run": folder.name,
        "folder": str(folder.resolve()),
        "finished": result is not None,
        "lineage": lineage(folder),
        **brief,
        "evaluation": known.get("evaluation"),
    }


def _so_far(path: Path) -> dict[str, Any]:
    """What the store knows of a run that has no result, or none yet."""
    if not path.exists():
        return {}
    steps, speed, mean = (store.last(path, name) for name in ("mill/updates", "time/fps", "rollout/ep_rew_mean"))
    return {
        "steps": steps["step"] if steps else 0,
        "steps_per_second": speed["value"] if speed else None,
        "train_return": mean["value"] if mean else None,
    }


def _setting(config: Mapping[str, Any], name: str) -> Any:
    """A setting that stands at the top of the file, or as the id or name of a group."""
    value = config.get(name)
    return value.get("id", value.get("name")) if isinstance(value, Mapping) else value


def _without_returns(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "returns"}


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot read {path}: {error}") from error
