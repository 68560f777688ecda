"""`mill role`: one role of a run on Kafka as this process, on whatever machine it is."""

from __future__ import annotations

import os
import random
import re
from argparse import ArgumentParser, Namespace
from typing import Any

from millstream.core.clock import SystemClock
from millstream.core.errors import ConfigError
from millstream.doors import saying
from millstream.doors.train import add_experiment, overrides

ROLES = {
    "learner": "learns, and makes the run known to the brokers",
    "actor": "plays; any number on any machine, up to 16",
    "evaluator": "judges policies while they are trained",
    "recorder": "keeps metrics, answers `mill status`, and stops the run at its target",
}


def configure(parser: ArgumentParser, name: str) -> None:
    """The options of `mill role`: those of `mill train`, and which role of which run."""
    about = "; ".join(f"{role}: {what}" for role, what in ROLES.items())
    parser.add_argument("role", metavar="ROLE", choices=tuple(ROLES), help=about)
    which = parser.add_argument_group("which run")
    which.add_argument("--run", dest="run_name", metavar="NAME",
                       help="its name (ENV__ALGO__SEED; without settings, who has the bare topics)")  # fmt: skip
    which.add_argument("--index", type=int, metavar="N", help="an actor's number (one that nobody else has)")
    which.add_argument("--patience", type=float, default=60.0, metavar="SECONDS",
                       help="how long to wait for a learner to make the run known (60)")  # fmt: skip
    add_experiment(parser, "what to play; only the learner needs to be told")
    parser.set_defaults(run=play)


def play(options: Namespace) -> int:
    """Be that role until the run ends or somebody says so."""
    from millstream import assembly, streaming

    experiment = assembly.experiment(options.config, {**overrides(options), "topology": "kafka"}, os.environ)
    clock = SystemClock()
    if options.role == "learner":
        assembly.check(experiment)
        known = streaming.introduce(experiment, options.run_name or _called(experiment), clock)
    else:
        known = streaming.find(experiment, _wanted(options, experiment), clock, options.patience)
    _say(options, known)
    if options.role == "recorder":
        return _record(known)
    streaming.play(options.role, _index(options), known)
    return 0


def _wanted(options: Namespace, experiment: Any) -> str | None:
    """The name that was given, or that these settings have; None means whoever has the bare topics."""
    said = options.place or options.env or options.config
    return options.run_name or (_called(experiment) if said else None)


def _called(experiment: Any) -> str:
    """The same settings have the same name, so that a learner which is started again goes on."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{experiment.env.id}__{experiment.algo}__{experiment.seed}")


def _index(options: Namespace) -> int:
    if options.index is None:
        return 0 if options.role != "actor" else random.SystemRandom().randrange(16, 1 << 31)
    if not 0 <= options.index < 1 << 31:
        raise ConfigError(f"--index is a number from 0 on, got {options.index}")
    return int(options.index)


def _say(options: Namespace, known: Any) -> None:
    where = f"{known.config.kafka.bootstrap}, topics {known.names.prefix}experiences, ..."
    print(f"{options.role} of {known.run} at {where}", flush=True)


def _record(known: Any) -> int:
    from millstream import training

    run = training.record_elsewhere(known)
    saying.heading(f"{run.id}  recorded, {run.result['steps']:,} steps")
    return 0
