"""`mill resume`: a paused run goes on at once, one that has ended goes on from its newest checkpoint."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream.control.desk import ask
from millstream.core.clock import process_started_at
from millstream.core.errors import RunError
from millstream.doors import options as options_
from millstream.doors import saying
from millstream.doors.finding import add_run, called, run_of
from millstream.doors.options import HOW, HOW_LONG, JUDGING, KEEPING, given
from millstream.doors.steer import on_kafka

_FLAGS = (*HOW_LONG, *HOW, *JUDGING, *KEEPING)


def configure(parser: ArgumentParser, name: str) -> None:
    """The options of `mill resume`."""
    add_run(parser, required=True)
    options_.add_flags(parser, "how long", HOW_LONG)
    options_.add_setting(options_.add_flags(parser, "how", HOW))
    options_.add_flags(parser, "judging", JUDGING)
    options_.add_flags(parser, "keeping", KEEPING)
    options_.add_output(parser)
    parser.set_defaults(run=resume)


def resume(options: Namespace) -> int:
    """Let a paused run go on; otherwise train on from the newest checkpoint."""
    folder, changes = run_of(options), given(options, _FLAGS)
    status = _status(folder)
    if status is not None:
        return _unpause(folder, status, changes, options)
    if not changes and on_kafka(folder) and _goes_on(folder):
        if not options.quiet:
            print(f"{folder.name} goes on")
        return 0
    from millstream import config, training
    from millstream.doors.ending import finish
    from millstream.doors.watching import telling, watchers

    stored = training.read_config(folder)
    experiment = config.from_plain(config.merge(stored, config.nest(changes)))
    _worth_it(folder, experiment, changes)
    watch = watchers(experiment, options)
    run = training.resume(folder, changes, started_at=process_started_at(), watch=watch, tell=telling(options))
    return finish(run, experiment, options)


def _goes_on(folder: Path) -> bool:
    """Whether workers without a root were only paused: they hear from the brokers that they may go on."""
    from millstream import config, streaming, training

    experiment = config.from_plain(training.read_config(folder))
    desired = streaming.desired(experiment, folder.name)
    if not desired.paused or desired.stopping:
        return False
    streaming.command(experiment, folder.name, {"command": "resume"})
    return True


def _status(folder: Path) -> Mapping[str, Any] | None:
    """What the run says of itself; None when nobody is there."""
    if not (folder / "run.sock").exists():
        return None
    try:
        status: Mapping[str, Any] = ask(folder / "run.sock", {"view": "status"})
    except RunError:
        return None  # a socket that was left behind; should the run live after all, its lock will say so
    return status


def _unpause(folder: Path, status: Mapping[str, Any], changes: Mapping[str, Any], options: Namespace) -> int:
    if changes:
        raise RunError(
            f"{folder.name} is under way: its settings can change once it has ended; mill stop {called(folder)}"
        )
    if status["state"] == "stopping":
        raise RunError(f"{folder.name} is just stopping; try again in a moment")
    ask(folder / "run.sock", {"command": "resume"})
    if options.json or options.json_lines:
        kind = {"kind": "result"} if options.json_lines else {}
        saying.say_json({**kind, "run": folder.name, "state": "running", "was": status["state"]})
    elif not options.quiet:
        print(
            f"{folder.name} goes on" if status["state"] == "paused" else f"{folder.name} is running; it was not paused"
        )
    return 0


def _worth_it(folder: Path, experiment: Any, changes: Mapping[str, Any]) -> None:
    """A run that has done what it should would end at once, and one without a checkpoint begin anew."""
    from millstream.telemetry.views import run_view

    result = run_view(folder)["result"] or {}
    trained, name = result.get("steps", 0), called(folder)
    if trained >= experiment.total_steps:
        raise RunError(
            f"{folder.name} has trained {trained:,} of {experiment.total_steps:,} steps; "
            f"for more: mill resume {name} --total-steps {2 * trained}"
        )
    if result.get("stopped_by") == "target" and experiment.target is not None and "target" not in changes:
        raise RunError(
            f"{folder.name} has reached its target {experiment.target:g}; for more: mill resume {name} --target none"
        )
