"""`mill kafka`: the topics of a run."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from millstream.doors import options as options_
from millstream.doors import saying
from millstream.doors.options import read_pairs


def configure(parser: ArgumentParser, name: str) -> None:
    """`mill kafka init`."""
    parser.add_argument("what", choices=("init",), help="init: make the topics that are missing, with their settings")
    parser.add_argument("--prefix", metavar="TEXT", help="what topic names begin with (nothing)")
    parser.add_argument("--config", metavar="FILE", help="an experiment file: .toml, .json or .yaml")
    options_.add_setting(parser.add_argument_group("settings"))
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=init)


def init(options: Namespace) -> int:
    """Make what is missing, and say what was."""
    from millstream import assembly, streaming

    experiment = assembly.experiment(options.config, read_pairs(options.settings, "--set"), os.environ)
    there, made = streaming.prepare(experiment, options.prefix)
    if options.json:
        saying.say_json({"bootstrap": experiment.kafka.bootstrap, "topics": there, "made": made})
        return 0
    saying.heading(f"{experiment.kafka.bootstrap}: {len(made)} topics made, {len(there) - len(made)} were there")
    for topic in there:
        print(f"  {topic}{'  made' if topic in made else ''}")
    return 0
