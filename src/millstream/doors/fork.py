"""`mill fork`: go on from a checkpoint of a run with other settings, as a new run."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from millstream.core.clock import process_started_at
from millstream.doors import options as options_
from millstream.doors.finding import add_run, run_of
from millstream.doors.options import HOW, HOW_LONG, JUDGING, KEEPING, Flag, given

_WHAT = (Flag("seed", ("--seed",), "N", about="Draw anew from here on; without it generators go on as they were."),)
_FLAGS = (*_WHAT, *HOW_LONG, *HOW, *JUDGING, *KEEPING)


def configure(parser: ArgumentParser, name: str) -> None:
    """The options of `mill fork`."""
    parser.description = (
        f"{parser.description} The run that is forked stays as it is. Algorithm, network and the environment's spaces "
        "are kept; what is not said here is as it was there."
    )
    add_run(parser, required=True)
    parser.add_argument(
        "--at", type=int, metavar="CHECKPOINT", help="its number; `mill show` lists them (the newest that is whole)"
    )
    options_.add_flags(parser, "what", _WHAT)
    options_.add_flags(parser, "how long", HOW_LONG)
    options_.add_setting(options_.add_flags(parser, "how", HOW))
    options_.add_flags(parser, "judging", JUDGING)
    options_.add_flags(parser, "keeping", KEEPING)
    options_.add_output(parser)
    parser.set_defaults(run=fork)


def fork(options: Namespace) -> int:
    """Train on from a checkpoint, and say how it went."""
    from millstream import forking
    from millstream.doors.ending import finish
    from millstream.doors.watching import telling, watchers

    branch = forking.branch(run_of(options), given(options, _FLAGS), options.at)
    _warn(branch.warnings, options)
    watch, tell = watchers(branch.experiment, options), telling(options)
    run = forking.grow(branch, started_at=process_started_at(), watch=watch, tell=tell)
    return finish(run, branch.experiment, options)


def _warn(warnings: Sequence[str], options: Namespace) -> None:
    for warning in () if options.quiet else warnings:
        print(f"mill: {warning}", file=sys.stderr)
