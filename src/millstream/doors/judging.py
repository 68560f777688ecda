"""`mill eval`, `record`, `export` and `export-data`: what can be done with a run's policy."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable

from millstream.doors import saying
from millstream.doors.ending import judgement
from millstream.doors.finding import add_run, run_of, shown
from millstream.doors.steer import on_kafka
from millstream.telemetry.words import counted, number

_MANY = 100
"""Episodes, unless told otherwise."""
_EVERY = 5.0
"""Seconds between two lines about an export that nobody watches on a terminal."""


def configure(parser: ArgumentParser, name: str) -> None:
    """The options of these commands."""
    commands: dict[str, Callable[[Namespace], int]] = {
        "eval": evaluate,
        "record": record,
        "export": export,
        "export-data": export_data,
    }
    add_run(parser)
    parser.add_argument(
        "--policy", choices=("best", "latest"), help="which one (the best by evaluation, else the latest)"
    )
    if name in ("eval", "export-data"):
        parser.add_argument("--episodes", type=int, metavar="N", help="how many to play (100)")
        parser.add_argument(
            "--stochastic", action="store_true", default=None, help="sample actions instead of the most probable ones"
        )
    if name in ("eval", "record", "export-data"):
        parser.add_argument("--seed", type=int, default=10_000, metavar="N", help="of the episodes (10000)")
    if name == "export":
        parser.add_argument("--format", choices=("safetensors", "onnx"), default="safetensors", help="(safetensors)")
    if name in ("record", "export"):
        parser.add_argument("--out", metavar="FILE", help="where to write it (in the run's folder)")
    if name == "export-data":
        add_dataset(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=commands[name])


def evaluate(options: Namespace) -> int:
    """Play episodes that no training has seen."""
    from millstream import training

    folder = run_of(options)
    found = training.evaluate(
        folder,
        episodes=_MANY if options.episodes is None else options.episodes,
        seed=options.seed,
        stochastic=options.stochastic,
        name=options.policy,
    )
    if options.json:
        saying.say_json({"run": folder.name, "seed": options.seed, "evaluation": found, "folder": str(folder)})
    else:
        saying.pairs(
            [
                ("run", folder.name),
                ("evaluation", judgement(found, bool(options.stochastic))),
                ("IQM", f"{found['iqm']:,.2f}"),
            ]
        )
    return 0


def record(options: Namespace) -> int:
    """Play one episode, and film it."""
    from millstream import training

    folder = run_of(options)
    path = training.record(folder, options.out, seed=options.seed, name=options.policy)
    saying.say_json({"run": folder.name, "video": str(path.resolve())}) if options.json else print(shown(path))
    return 0


def export(options: Namespace) -> int:
    """Write the policy in a format that others read."""
    from millstream import exporting

    folder = run_of(options)
    path = exporting.export(folder, options.format, options.out, options.policy)
    saying.say_json(
        {"run": folder.name, "format": options.format, "file": str(path.resolve())}
    ) if options.json else print(shown(path))
    return 0


def export_data(options: Namespace) -> int:
    """Let the policy play, and write down whole episodes."""
    from millstream import datasets

    folder = run_of(options)
    how = {"kind": options.format, "overwrite": options.overwrite}
    if (options.source or ("log" if on_kafka(folder) else "policy")) == "log":
        told = counting(options.episodes, options.json)
        found = datasets.export_logged(folder, options.out, episodes=options.episodes, told=told, **how)
    else:
        episodes = _MANY if options.episodes is None else options.episodes
        found = datasets.export_played(
            folder,
            options.out,
            episodes=episodes,
            seed=options.seed,
            stochastic=options.stochastic,
            name=options.policy,
            told=counting(episodes, options.json),
            **how,
        )
    if options.json:
        saying.say_json({"run": folder.name, **found})
        return 0
    returns = found["returns"]
    saying.lines(
        [
            ("dataset", shown(found["folder"])),
            ("holds", f"{counted(found['episodes'], 'episode')}, {counted(found['steps'], 'step')}"),
            ("return", f"{number(returns['mean'])} ({number(returns['min'])} to {number(returns['max'])})"),
            ("learn from it", f"mill train {found['env']} --algo cloning --data {options.out}"),
        ]
    )
    return 0


def add_dataset(parser: ArgumentParser) -> None:
    """What is written, where, and over what."""
    parser.description = "Write whole episodes to a Minari dataset: a run's policy plays them, or its log holds them."
    parser.add_argument(
        "--out",
        required=True,
        metavar="DATASET",
        help="a folder such as ./expert, or a name such as cartpole/expert-v0 in the folder of Minari",
    )
    source = "let the policy play, or take what a log on Kafka holds (the log, if there is one)"
    parser.add_argument("--source", choices=("policy", "log"), help=source)
    parser.add_argument("--format", choices=("hdf5", "arrow", "parquet"), default="hdf5", help="of the files (hdf5)")
    parser.add_argument("--overwrite", action="store_true", help="replace a dataset of that name")


def counting(total: int | None, as_json: bool) -> Callable[[int, int], None]:
    """Says on standard error how far an export is: a line that changes on a terminal, elsewhere one now and then."""
    terminal = sys.stderr.isatty()
    if as_json and not terminal:
        return lambda episodes, steps: None
    pause, said = 0.1 if terminal else _EVERY, time.monotonic()

    def told(episodes: int, steps: int) -> None:
        nonlocal said
        now, last = time.monotonic(), terminal and total is not None and episodes >= total
        if now - said < pause and not last:
            return
        said = now
        of = counted(episodes, "episode") if total is None else f"{episodes:,} of {counted(total, 'episode')}"
        text = f"{of}, {counted(steps, 'step')}"
        sys.stderr.write(f"\r{text}\x1b[K" + ("\n" if last else "") if terminal else f"{text}\n")
        sys.stderr.flush()

    return told
