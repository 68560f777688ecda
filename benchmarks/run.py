"""`make bench`: each row of the table, ours beside its peers in one run."""

from __future__ import annotations

import argparse
import importlib
import sys

ROWS = ("ppo", "learning", "limits", "scaling", "solve", "impala", "gymnasium", "pong", "memory", "start")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=ROWS, action="append", help="measure only this row (repeatable)")
    parser.add_argument("--repeats", type=int, default=3, help="how often each side runs")
    arguments = parser.parse_args()
    for name in arguments.only or ROWS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        print(importlib.import_module(f"rows.{name}").row(arguments.repeats), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
