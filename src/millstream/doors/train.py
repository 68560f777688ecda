"""`mill train`."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream.core.clock import process_started_at
from millstream.core.errors import ConfigError
from millstream.doors import options as options_
from millstream.doors.options import FOLDER, HOW, HOW_LONG, JUDGING, KEEPING, WHAT, given, read_pairs

_FLAGS = (*WHAT, *HOW_LONG, *HOW, *JUDGING, *KEEPING, *FOLDER)


def configure(parser: ArgumentParser, name: str) -> None:
    """The options of `mill train`."""
    parser.description = (
        f"{parser.description or ''} What stands in brackets is a default: where there is a preset for the environment "
        "and the algorithm (`mill presets`), its settings come instead, and what is said here comes before both."
    ).strip()
    what = add_experiment(parser, "what to play; `mill envs` lists names (CartPole-v1)")
    what.add_argument("--seeds", type=int, metavar="N", help="train N seeds in turn, then show one table and one plot")
    options_.add_output(parser)
    parser.set_defaults(run=train)


def add_experiment(parser: ArgumentParser, env: str) -> Any:
    """Everything that decides a run; the group of options about what is trained."""
    parser.add_argument("place", metavar="ENV", nargs="?", help=env)
    parser.add_argument("--env", "--env-id", dest="env", metavar="ENV", help="the same, by name")
    what = options_.add_flags(parser, "what", WHAT)
    what.add_argument("--env-arg", action="append", default=[], metavar="K=V", help="an argument for the environment")
    what.add_argument("--wrapper", action="append", default=[], metavar="MODULE:FUNCTION",
                      help="wrap each environment, the first innermost")  # fmt: skip
    what.add_argument("--from", dest="warm_start", metavar="RUN", help="start from the weights of this run")
    options_.add_flags(parser, "how long", HOW_LONG)
    how = options_.add_flags(parser, "how", HOW)
    how.add_argument("--config", metavar="FILE", help="an experiment file: .toml, .json or .yaml")
    options_.add_setting(how)
    options_.add_flags(parser, "judging", JUDGING)
    options_.add_flags(parser, "keeping", (*KEEPING, *FOLDER))
    return what


def train(options: Namespace) -> int:
    """Train one seed or several, and say how it went."""
    if options.seeds is not None:
        from millstream.doors.seeds import train_seeds

        return train_seeds(options, overrides(options))
    from millstream import assembly, training
    from millstream.doors.ending import finish
    from millstream.doors.watching import telling, watchers

    experiment = assembly.experiment(options.config, overrides(options), os.environ)
    watch, tell = watchers(experiment, options), telling(options)
    run = training.start(experiment, started_at=process_started_at(), watch=watch, tell=tell)
    return finish(run, experiment, options)


def overrides(options: Namespace) -> Mapping[str, Any]:
    """What was said on the command line, as settings."""
    found = given(options, _FLAGS)
    env = _env(options)
    if env is not None:
        found["env.id"] = env
    for key, value in read_pairs(options.env_arg, "--env-arg").items():
        found[f"env.args.{key}"] = value
    if options.wrapper:
        found["env.wrappers"] = options.wrapper
    if "data" in found and Path(str(found["data"])).is_dir():
        found["data"] = str(Path(str(found["data"])).resolve())  # whole, because the settings keep it
    if options.warm_start is not None:
        found["warm_start"] = _source(options.warm_start, str(found.get("folder", "runs")))
    return found


def _env(options: Namespace) -> str | None:
    if options.place and options.env and options.place != options.env:
        raise ConfigError(f"two environments are given, {options.place} and {options.env}; which one?")
    named: str | None = options.env or options.place
    return named


def _source(name: str, folder: str) -> str:
    """The run, or the file of a policy, to start from; its whole path, because the settings keep it."""
    from millstream.doors.finding import find_run

    return str(Path(name).resolve()) if Path(name).is_file() else str(find_run(name, Path(folder)))
