"""`mill runs`, `show` and `plot`: what is known of runs, read from their folders."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from millstream.doors import saying
from millstream.doors.ending import judgement
from millstream.doors.finding import LATEST, add_folder, add_run, find_run, run_of, shown
from millstream.doors.steer import state_of
from millstream.telemetry import views
from millstream.telemetry.words import brief, duration, number, sparkline

_STYLES = {
    "running": saying.GOOD,
    "paused": "#E69F00",
    "finished": "",
    "stopped": "dim",
    "interrupted": "dim",
    "cut off": "dim",
    "damaged": saying.BAD,
}


def configure(parser: ArgumentParser, name: str) -> None:
    """The options of these commands."""
    commands: dict[str, Callable[[Namespace], int]] = {"runs": runs, "show": show, "plot": plot}
    if name == "runs":
        add_folder(parser)
    elif name == "show":
        add_run(parser)
    else:
        parser.add_argument("names", metavar="RUN", nargs="*", help="runs; of one all curves, of several their returns")
        add_folder(parser)
        parser.add_argument("--out", metavar="FILE", help="where to draw it (.png, .svg or .pdf)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=commands[name])


# --- runs ------------------------------------------------------------------------------------------------------------


def runs(options: Namespace) -> int:
    """A line a run, the newest first."""
    found = [{**run, "state": _state(run)} for run in views.runs_view(options.folder)]
    if saying.said("runs", found, options.json, f"There are no runs in {options.folder} yet. `mill train` makes one."):
        return 0
    columns = ("run", "state", "steps", "return", "judged", "steps/s")
    saying.table(columns, [_line(run) for run in found], right=columns[2:], fold="run")
    return 0


def _line(run: Mapping[str, Any]) -> tuple[Any, ...]:
    judged = run.get("evaluation")
    return (
        f"{run['run']}\n  {_origin(run['lineage'])}" if run.get("lineage") else run["run"],
        _coloured(run["state"]),
        brief(run["steps"]) if run.get("steps") is not None else "-",
        _number(run.get("train_return")),
        _number(judged["mean"] if judged else None),
        brief(run["steps_per_second"]) if run.get("steps_per_second") else "-",
    )


def _origin(lineage: Mapping[str, Any]) -> str:
    return f"from {lineage['run']} at {lineage['checkpoint']}"


def _state(run: Mapping[str, Any]) -> str:
    if "damaged" in run:
        return "damaged"
    return state_of(Path(run["folder"])) or (_ended(run["stopped_by"]) if run["finished"] else "cut off")


def _ended(stopped_by: str | None) -> str:
    """A run that did what it should is finished; any other was interrupted, or stopped by somebody."""
    if stopped_by == "interrupted":
        return "interrupted"
    return "finished" if stopped_by in (None, "target", "steps") else "stopped"


# --- show ------------------------------------------------------------------------------------------------------------


def show(options: Namespace) -> int:
    """One run on a screen."""
    folder = run_of(options)
    view = views.run_view(folder)
    view["state"] = _state(view)
    if options.json:
        saying.say_json(view)
        return 0
    from rich.text import Text

    saying.console().print(Text.assemble((view["run"], "bold"), "  ", _coloured(view["state"])))
    saying.pairs([*_facts(view), *_numbers(view, folder), *_places(folder)])
    _events(view)
    return 0


def _facts(view: Mapping[str, Any]) -> list[tuple[str, str]]:
    config, result = view["config"], view["result"] or {}
    actor = config["actor"]
    rows = [
        ("what", f"{view['algo']} on {view['env']}, seed {view['seed']}, {view['topology']}"),
        ("actors", f"{actor['count']} of {actor['envs']} environments, {actor['unroll']} steps a rollout"),
    ]
    if view["lineage"]:
        rows.append(("forked", _lineage(view["lineage"])))
    if config["hyper"]:
        rows.append(("hyper", ", ".join(f"{name} {value}" for name, value in config["hyper"].items())))
    if result:
        why = f" ({result['reason']})" if result.get("reason") else ""
        rows.append(("ended by", f"{result['stopped_by']}{why}"))
    return rows


def _lineage(lineage: Mapping[str, Any]) -> str:
    """Where a fork comes from, and what is different in it."""
    changes = ", ".join(f"{name} {value}" for name, value in lineage["set"].items()) or "nothing set anew"
    return f"{_origin(lineage)} ({lineage['steps']:,} steps), {changes}"


def _numbers(view: Mapping[str, Any], folder: Path) -> list[tuple[str, str]]:
    result, latest = view["result"] or {}, view["latest"]
    rows = []
    if view["steps"] is not None:
        words = f"{view['steps']:,}" + (f" in {duration(view['seconds'])}" if view["seconds"] is not None else "")
        speed = view["steps_per_second"]
        rows.append(("steps", words + (f", {speed:,.0f} a second" if speed else "")))
    ended = view["train_return"] is not None
    rows.append(
        ("training", f"{number(view['train_return'])}  {_curve(folder)}" if ended else "no episode has ended yet")
    )
    judged = result.get("evaluation") or (view["evaluations"][-1] if view["evaluations"] else None)
    if judged:
        rows.append(("evaluation", judgement(judged, view["config"]["evaluation"]["stochastic"])))
    losses = [
        f"{name.removeprefix('losses/')} {number(value)}"
        for name, value in latest.items()
        if name.startswith("losses/")
    ]
    return [*rows, ("losses", ", ".join(losses))] if losses else rows


def _curve(folder: Path) -> str:
    from millstream.telemetry import store

    path = folder / store.STORE
    if not path.exists():
        return ""
    return sparkline([float(value) for value in store.returns(path)[1]], 40)


def _places(folder: Path) -> list[tuple[str, str]]:
    rows = [("folder", shown(folder))]
    for label, pattern in (("plot", "plots/*.png"), ("video", "videos/*"), ("policy", "policies/*.safetensors")):
        files = sorted(folder.glob(pattern))
        if files:
            rows.append((label, ", ".join(str(path.relative_to(folder)) for path in files)))
    saved = sorted(int(path.name) for path in folder.glob("checkpoints/*") if path.name.isdecimal())
    return [*rows, ("checkpoints", ", ".join(map(str, saved)))] if saved else rows


def _events(view: Mapping[str, Any]) -> None:
    if not view["events"]:
        return
    saying.heading("")
    saying.pairs(
        (time.strftime("%H:%M:%S", time.localtime(event["at"])), _event(event, view)) for event in view["events"][-8:]
    )


def _event(event: Mapping[str, Any], view: Mapping[str, Any]) -> str:
    text = str(event["text"]).replace(f"{view['folder']}/", "")
    return text if event["level"] == "info" else f"{event['level']}: {text}"


# --- plot ------------------------------------------------------------------------------------------------------------


def plot(options: Namespace) -> int:
    """Draw one run with all its curves, or the returns of several."""
    folders = [find_run(name, Path(options.folder)) for name in options.names or [LATEST]]
    drawn = _plot_one(folders[0], options.out) if len(folders) == 1 else _plot_many(folders, options)
    saying.say_json({"plot": str(drawn.resolve())}) if options.json else print(shown(drawn))
    return 0


def _plot_one(folder: Path, out: str | None) -> Path:
    from millstream.telemetry.plots import plot_run
    from millstream.telemetry.store import STORE

    config = views.run_view(folder)["config"]
    title = f"{config['algo']} on {config['env']['id']}, seed {config['seed']}"
    return plot_run(folder / STORE, out or folder / "plots" / "run.png", title, config["target"])


def _plot_many(folders: list[Path], options: Namespace) -> Path:
    """Runs of one algorithm on one environment are its seeds."""
    from millstream.telemetry.plots import plot_runs
    from millstream.telemetry.store import STORE

    configs = [views.run_view(folder)["config"] for folder in folders]
    several = len({config["env"]["id"] for config in configs}) > 1
    groups: dict[str, list[Path | str]] = {}
    for folder, config in zip(folders, configs, strict=True):
        label = f"{config['algo']} on {config['env']['id']}" if several else config["algo"]
        groups.setdefault(label, []).append(folder / STORE)
    targets = {config["target"] for config in configs}
    out = options.out or Path(options.folder) / "plots" / time.strftime("runs__%Y%m%d-%H%M%S.png")
    title = "" if several else configs[0]["env"]["id"]
    return plot_runs(list(groups.items()), out, title, targets.pop() if len(targets) == 1 else None)


def _coloured(state: str) -> Any:
    from rich.text import Text

    return Text(state, style=_STYLES.get(state, ""))


def _number(value: float | None) -> str:
    return "-" if value is None else number(value)
