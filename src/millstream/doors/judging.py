"""`mill eval`, `record` and `export`: what can be done with a run's policy."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable

from millstream.doors import saying
from millstream.doors.ending import judgement
from millstream.doors.finding import add_run, run_of, shown


def configure(parser: ArgumentParser, name: str) -> None:
    """The options of these commands."""
    commands: dict[str, Callable[[Namespace], int]] = {"eval": evaluate, "record": record, "export": export}
    add_run(parser)
    parser.add_argument(
        "--policy", choices=("best", "latest"), help="which one (the best by evaluation, else the latest)"
    )
    if name == "eval":
        parser.add_argument("--episodes", type=int, default=100, metavar="N", help="how many to play (100)")
        parser.add_argument(
            "--stochastic", action="store_true", default=None, help="sample actions instead of the most probable ones"
        )
    if name in ("eval", "record"):
        parser.add_argument("--seed", type=int, default=10_000, metavar="N", help="of the episodes (10000)")
    if name == "export":
        parser.add_argument("--format", choices=("safetensors", "onnx"), default="safetensors", help="(safetensors)")
    if name != "eval":
        parser.add_argument("--out", metavar="FILE", help="where to write it (in the run's folder)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=commands[name])


def evaluate(options: Namespace) -> int:
    """Play episodes that no training has seen."""
    from millstream import training

    folder = run_of(options)
    found = training.evaluate(
        folder, episodes=options.episodes, seed=options.seed, stochastic=options.stochastic, name=options.policy
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
