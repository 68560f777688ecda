"""Asking and telling a run that is under way. Commands come from the registry; their docstrings are the help."""

from __future__ import annotations

import dataclasses
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream.control.commands import REGISTRY
from millstream.control.desk import ask
from millstream.core.errors import MillError, RunError
from millstream.core.settings import read_text
from millstream.doors import saying
from millstream.doors.finding import add_run, called, run_of
from millstream.telemetry.words import duration, number

SOCKET = "run.sock"
_SAID = {"pause": "waits", "stop": "saves, then ends", "checkpoint": "writes a checkpoint"}


def configure(parser: ArgumentParser, name: str) -> None:
    """`mill status RUN`, or `mill COMMAND RUN`, with an argument for each field that the command needs."""
    add_run(parser, required=name != "status")
    if name == "status":
        parser.set_defaults(run=status)
    else:
        meanings = _meanings(name) if getattr(parser, "explained", True) else {}
        for field in _fields(name):
            needed, about = field.default is dataclasses.MISSING, meanings.get(field.name, "")
            parser.add_argument(field.name if needed else f"--{field.name}", metavar=field.name.upper(), help=about)
        parser.set_defaults(run=lambda options: tell(name, options))
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def tell(name: str, options: Namespace) -> int:
    """Send one command to a run."""
    folder = run_of(options)
    values = {field.name: getattr(options, field.name) for field in _fields(name)}
    fields = {key: read_text(text) for key, text in values.items() if text is not None}
    answer = _tell(folder, {"command": name, **fields})
    if options.json:
        saying.say_json({"run": folder.name, "command": name, **answer})
    else:
        said = ", ".join(f"{key} {value}" for key, value in fields.items())
        print(f"{folder.name} {_SAID.get(name, f'will {name}')}{f': {said}' if said else ''}")
    return 0


def status(options: Namespace) -> int:
    """How a run is doing, in its own words."""
    folder = run_of(options)
    view = _ask(folder, {"view": "status"})
    if options.json:
        saying.say_json(view)
        return 0
    saying.heading(f"{view['run']}  {view['state']}")
    saying.pairs(_facts(view))
    return 0


def _tell(folder: Path, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """By its socket; workers on Kafka that have no root here hear commands from the brokers."""
    try:
        answer: Mapping[str, Any] = _ask(folder, request)
        return answer
    except RunError:
        if not on_kafka(folder) or state_of(folder) is not None:
            raise
    from millstream import config, streaming, training

    streaming.command(config.from_plain(training.read_config(folder)), folder.name, request)
    return {"by": "the brokers"}


def on_kafka(folder: Path) -> bool:
    """Whether the workers of a run hear commands from brokers."""
    from millstream.training import read_config

    return read_config(folder).get("topology") == "kafka"


def _ask(folder: Path, request: Mapping[str, Any]) -> Any:
    """The run's answer; of a run that has ended it is said how, and what can be done with it."""
    try:
        return ask(folder / SOCKET, request)
    except RunError as error:
        if (folder / SOCKET).exists():
            raise
        name = called(folder)
        if on_kafka(folder) and not (folder / "result.json").exists():
            raise RunError(
                f"nobody here answers for {folder.name}, though its workers may go on: "
                f"mill role recorder --run {folder.name} shows it, mill stop {name} ends it"
            ) from error
        raise RunError(
            f"{folder.name} is not running: it {_ending(folder)}; mill resume {name} goes on, mill show {name} shows it"
        ) from error


def _ending(folder: Path) -> str:
    from millstream.telemetry.views import run_view

    result = run_view(folder)["result"]
    if result is None:
        return "was cut off before its end"
    by = result["stopped_by"]
    words = {"target": "reached its target", "steps": "trained all its steps", "interrupted": "was interrupted"}
    why = f" ({result['reason']})" if result.get("reason") else ""
    return f"{words.get(by, f'was stopped{why}')} after {result['steps']:,} steps"


def state_of(folder: Path) -> str | None:
    """`running`, `paused` or `stopping`; None when nobody answers."""
    if not (folder / SOCKET).exists():
        return None
    try:
        return str(ask(folder / SOCKET, {"view": "status"}, timeout=1.0)["state"])
    except MillError:
        return None


def told_ledger(folder: Path) -> Mapping[str, Any] | None:
    """Where a run says that its steps went: itself while it is under way, otherwise in its result."""
    from millstream.telemetry.views import run_view

    try:
        found: Mapping[str, Any] = ask(folder / SOCKET, {"view": "status"}, timeout=1.0)["ledger"]
        return found
    except MillError:
        result = run_view(folder)["result"]
        return None if result is None else result["ledger"]


def _facts(view: Mapping[str, Any]) -> list[tuple[str, str]]:
    speed, left = view["steps_per_second"], view["seconds_left"]
    total = f" of {view['total_steps']:,}" if view["total_steps"] else ""
    rows = [
        (
            "steps",
            f"{view['steps']:,}{total} in {duration(view['seconds'])}" + (f", {duration(left)} left" if left else ""),
        )
    ]
    if view["train_return"] is not None:
        trend = f", {view['trend']}" if view["trend"] else ""
        rows.append(("return", f"{number(view['train_return'])}{trend}"))
    rows += [("speed", f"{speed:,.0f} steps a second")] if speed else []
    lag = view["policy_lag"]
    rows += [("policy lag", f"{lag:.2f} updates, at most {view['policy_lag_max']:.0f}")] if lag is not None else []
    fates = {"dropped": view["ledger"]["stale"], "corrected": view["corrected"]}
    stale = [f"{steps:,} steps {fate}" for fate, steps in fates.items() if steps]
    rows += [("too old", ", ".join(stale))] if stale else []
    for worker in view["workers"]:
        state = f"pid {worker['pid']}" if worker["alive"] else f"ended: {worker['error'] or worker['exit_code']}"
        rows.append((worker["name"], state + (f", start {worker['epoch'] + 1}" if worker["epoch"] else "")))
    return rows


def _fields(name: str) -> tuple[dataclasses.Field[Any], ...]:
    kind: Any = REGISTRY[name]
    return dataclasses.fields(kind)


def _meanings(name: str) -> Mapping[str, str]:
    """The text under each field of a command, with its default."""
    from millstream.core.settings import describe

    described = describe(REGISTRY[name])
    return {each.name: each.meaning + (f" ({each.default})" if each.default is not None else "") for each in described}
