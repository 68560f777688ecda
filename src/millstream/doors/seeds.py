"""`mill train --seeds N`: several seeds in turn, then one table and one plot."""

from __future__ import annotations

import os
import re
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.core.clock import process_started_at
from millstream.core.errors import ConfigError
from millstream.doors import saying
from millstream.doors.failing import INTERRUPTED
from millstream.doors.finding import shown
from millstream.telemetry.words import counted, number

if TYPE_CHECKING:
    from millstream.config import Experiment
    from millstream.training import Run


def train_seeds(options: Namespace, overrides: Mapping[str, Any]) -> int:
    """Train `--seeds` seeds from `--seed` on; Ctrl-C ends the series, and what is there is shown."""
    if options.seeds < 1:
        raise ConfigError(f"--seeds should be at least 1, got {options.seeds}")
    from millstream import assembly, training
    from millstream.doors.watching import telling, watchers

    first = assembly.experiment(options.config, overrides, os.environ)
    runs: list[Run] = []
    started_at = process_started_at()
    for seed in range(first.seed, first.seed + options.seeds):
        experiment = assembly.experiment(options.config, {**overrides, "seed": seed}, os.environ)
        watch, tell = watchers(experiment, options), telling(options)
        runs.append(training.start(experiment, started_at=started_at, watch=watch, tell=tell))
        if options.json_lines:
            saying.say_json({"kind": "result", **runs[-1].result})
        if runs[-1].interrupted:
            break
        started_at = time.time()
    return _finish(runs, first, options)


def _finish(runs: Sequence[Run], experiment: Experiment, options: Namespace) -> int:
    from millstream.telemetry.views import seeds_view

    view = seeds_view([run.result for run in runs])
    plot = _plot(runs, experiment)
    if options.json or options.json_lines:
        kind = {"kind": "seeds"} if options.json_lines else {}
        about = {"env": experiment.env.id, "algo": experiment.algo, "topology": experiment.topology}
        places = {"plot": str(plot), "folder": str(runs[0].folder.parent)}
        saying.say_json({**kind, **about, **view, **places})
    elif not options.quiet:
        show(view, experiment, plot)
    return INTERRUPTED if runs[-1].interrupted else 0


def _plot(runs: Sequence[Run], experiment: Experiment) -> Path:
    from millstream.telemetry.plots import plot_runs
    from millstream.telemetry.store import STORE

    what = f"{experiment.env.id}__{experiment.algo}__{len(runs)}-seeds"
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", what) + time.strftime("__%Y%m%d-%H%M%S.png")
    title = f"{experiment.algo} on {experiment.env.id}, {counted(len(runs), 'seed')}"
    stores = [run.folder / STORE for run in runs]
    return plot_runs([(experiment.algo, stores)], runs[0].folder.parent / "plots" / name, title, experiment.target)


def show(view: Mapping[str, Any], experiment: Experiment, plot: Path) -> None:
    """The table of the seeds, and what they amount to."""
    saying.heading("")
    columns = ("seed", "steps", "seconds", "steps/s", "training", "to target", "evaluation")
    saying.table(columns, [_row(run) for run in view["runs"]], right=columns)
    judged, target = view["evaluation"], experiment.target
    rows = []
    if judged:
        spread = f"95 % interval over seeds {number(judged['low'])} to {number(judged['high'])}"
        rows.append(("evaluation", f"{number(judged['mean'])} ({spread}; IQM {number(judged['iqm'])})"))
    if target is not None:
        average = f", after {view['steps_to_target']:,.0f} steps on average" if view["reached"] else ""
        rows.append(
            ("target", f"{target:g} reached by {view['reached']} of {counted(len(view['runs']), 'seed')}{average}")
        )
    saying.lines([*rows, ("plot", shown(plot))])


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    speed, reached, judged = row["steps_per_second"], row["target_reached"], row["evaluation"]
    return (
        str(row["seed"]),
        f"{row['steps']:,}",
        f"{row['seconds']:.1f}",
        f"{speed:,.0f}" if speed else "-",
        number(row["train_return"]) if row["train_return"] is not None else "-",
        f"{reached['steps']:,}" if reached else "-",
        number(judged["mean"]) if judged else "-",
    )
