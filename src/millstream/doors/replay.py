"""`mill replay`: a run on Kafka trained again from its log, its weights compared with those of then."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from millstream.core.errors import RunError
from millstream.doors import saying
from millstream.doors.finding import add_run, run_of

_EVERY = 2.0


def configure(parser: ArgumentParser, name: str) -> None:
    """`mill replay RUN`."""
    add_run(parser)
    parser.add_argument(
        "--from", dest="start", type=int, metavar="N", help="begin with this checkpoint (the beginning)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=replay)


def replay(options: Namespace) -> int:
    """Do it again, and compare; exit code 1 at a difference."""
    from millstream import config, hindsight, training

    folder = run_of(options)
    experiment = config.from_plain(training.read_config(folder))
    if experiment.topology != "kafka":
        raise RunError(f"{folder.name} ran on {experiment.topology}, which keeps no log; only runs on Kafka replay")
    found = hindsight.replay(experiment, folder, options.start, _telling(options.json))
    if options.json:
        saying.say_json({"run": folder.name, **asdict(found), "same": found.same})
    else:
        saying.heading(f"{folder.name}  {'the same' if found.same else 'not the same'}")
        saying.pairs(_rows(found))
    return 0 if found.same else 1


def _rows(found: Any) -> list[tuple[str, str]]:
    rows = [
        ("updates", f"{found.updates:,} done again"),
        ("weights", f"{found.agreed} of {found.compared} hashes agree"),
    ]
    if found.difference is not None:
        first = found.difference
        rows.append(
            ("first difference", f"update {first.update}: {first.found[:12]}, the journal has {first.recorded[:12]}")
        )
    if found.reason is not None:
        rows.append(("given up", found.reason))
    return rows


def _telling(as_json: bool) -> Callable[[int, int], None]:
    """How far it is, on standard error, now and then."""
    said = time.monotonic()

    def told(done: int, last: int) -> None:
        nonlocal said
        if as_json or time.monotonic() - said < _EVERY:
            return
        said = time.monotonic()
        print(f"{done:,} of {last:,} updates done again", file=sys.stderr, flush=True)

    return told
