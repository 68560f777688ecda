"""`make bench`: each row of the table, ours beside its peers in one run."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys

from measure import Failed

ROWS = (
    "ppo",
    "learning",
    "limits",
    "scaling",
    "solve",
    "impala",
    "gymnasium",
    "pong",
    "images",
    "offpolicy",
    "memory",
    "start",
    "replay",
    "kafka",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=ROWS, action="append", help="measure only this row (repeatable)")
    parser.add_argument("--repeats", type=int, default=3, help="how often each side runs")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the side which runs is ended too
    failed = []
    for name in arguments.only or ROWS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            print(importlib.import_module(f"rows.{name}").row(arguments.repeats), end="\n\n", flush=True)
        except Failed as error:
            print(f"  {error}", file=sys.stderr, flush=True)
            failed.append(name)
    if failed:
        sys.exit(f"no table for: {', '.join(failed)}")


if __name__ == "__main__":
    main()
