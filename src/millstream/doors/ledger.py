"""`mill ledger`: where every environment step of a run went."""

from __future__ import annotations

import dataclasses
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream.core.errors import RunError
from millstream.doors import saying
from millstream.doors.finding import add_run, run_of


def configure(parser: ArgumentParser, name: str) -> None:
    """`mill ledger RUN`."""
    add_run(parser, required=False)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=show)


def show(options: Namespace) -> int:
    """Count, and show; exit code 1 when the sums do not agree."""
    folder = run_of(options)
    found = of(folder)
    if options.json:
        saying.say_json({"run": folder.name, **found})
    else:
        saying.heading(f"{folder.name}  {found['rollouts']:,} rollouts, {found['bytes'] / 1e6:,.1f} MB in the log")
        saying.pairs(_rows(found))
    return 0 if found["balanced"] else 1


def of(folder: Path) -> dict[str, Any]:
    """The ledger of a run on Kafka, recomputed from its log; of others the last one that they told."""
    from millstream import config, hindsight, training

    experiment = config.from_plain(training.read_config(folder))
    if experiment.topology == "kafka":
        ledger = hindsight.ledger(experiment, folder)
        return {**dataclasses.asdict(ledger), "balanced": ledger.balanced}
    return _told(folder)


def _told(folder: Path) -> dict[str, Any]:
    from millstream.doors.steer import told_ledger

    told = told_ledger(folder)
    if told is None:
        raise RunError(f"{folder.name} has told nothing of its steps yet")
    rest = {"refused": {}, "rollouts": 0, "bytes": 0, "unexplained": 0, "balanced": True}
    return {"published": told["made"], **rest, **{name: value for name, value in told.items() if name != "made"}}


def _rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("published", f"{found['published']:,} environment steps")]
    for name in ("trained", "stale", "in_flight"):
        rows.append((name.replace("_", " "), f"{found[name]:,}"))
    rows += [(f"refused: {reason}", f"{steps:,}") for reason, steps in found["refused"].items()]
    rows.append(("lost with actor", f"{found.get('lost_with_actor', 0):,} (made, never published)"))
    if found.get("rolled_back"):
        rows.append(("rolled back", f"{found['rolled_back']:,} (trained, and lost with a dead learner)"))
    agree = "published = trained + stale + refused + in flight" if found["balanced"] else "the sums do not agree"
    return [*rows, ("balance", agree)]
