"""`make learn`: presets measured again, each by the command that people type; figures and curves are written anew.

What is measured goes to `src/millstream/agents/measured.json` as soon as it is known, the curve to
`docs/images/presets`, and `docs/presets.md` is brought up to date. What was not measured stays as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from players import players

from millstream.agents import figures, presets
from millstream.core.files import replace_durably
from millstream.telemetry.views import runs_view

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images" / "presets"
PAGE = ROOT / "docs" / "presets.py"
MILL = Path(sys.executable).with_name("mill")
EVERY = 30.0
"""Seconds between two lines about a measurement that nobody watches on a terminal."""


class Failed(Exception):
    """A preset could not be measured."""


def measure(env: str, algo: str, seeds: int = figures.SEEDS, extra: Sequence[str] = ()) -> tuple[dict[str, Any], bytes]:
    """The entry of one preset, and its curve; `extra` are further options for the command."""
    command = shlex.join([*shlex.split(figures.command(env, algo, seeds)), *extra])
    with TemporaryDirectory(prefix="mill-learn-") as place:
        told = _run([str(MILL), *shlex.split(command)[1:], "--json", "--folder", place], Path(place))
        if len(told["runs"]) < seeds or told["evaluation"] is None:
            raise Failed(f"{len(told['runs'])} of {seeds} seeds were trained")
        curve = Path(told["plot"]).read_bytes()
    return entry(env, algo, told, command), curve


def entry(env: str, algo: str, told: Mapping[str, Any], command: str) -> dict[str, Any]:
    """What is kept of the object that the command printed."""
    runs, target = told["runs"], presets.preset(env, algo).get("target")
    reached = [run["target_reached"]["steps"] for run in runs if run["target_reached"]]
    return {
        "env": env,
        "algo": algo,
        "settings": presets.fingerprint(env, algo),
        "command": command,
        "seeds": told["seeds"],
        "episodes": runs[0]["evaluation"]["episodes"],
        "return": {name: round(told["evaluation"][name], 3) for name in ("mean", "low", "high")},
        "returns": [round(run["evaluation"]["mean"], 3) for run in runs],
        "steps": statistics.median(run["steps"] for run in runs),
        "seconds": round(statistics.median(run["seconds"] for run in runs), 2),
        "cores": len(os.sched_getaffinity(0)),
        "target": None if target is None else _reached(target, reached),
        "players": players(env, presets.preset(env, algo)),
        "curve": re.sub(r"[^A-Za-z0-9._-]+", "-", f"{env}__{algo}") + ".png",
    }


def _reached(target: float, steps: Sequence[int]) -> dict[str, Any]:
    return {"value": target, "reached": len(steps), "steps": statistics.median(steps) if steps else None}


def _run(command: Sequence[str], place: Path) -> dict[str, Any]:
    """Run it to its end. On a terminal it shows its own panel; elsewhere a line is said now and then."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MILL_")}
    with (place / "told.json").open("w+") as told, subprocess.Popen(command, stdout=told, env=environ) as process:
        while process.poll() is None:
            try:
                process.wait(EVERY)
            except subprocess.TimeoutExpired:
                if not sys.stderr.isatty():
                    _say(_so_far(place))
        if process.returncode:
            raise Failed(f"the command ended with exit code {process.returncode}")
        told.seek(0)
        return dict(json.load(told))


def _so_far(place: Path) -> str:
    runs = runs_view(place)
    if not runs:
        return "  ..."
    mean = runs[0]["train_return"]
    return f"  seed {runs[0]['seed']}: {runs[0]['steps'] or 0:,} steps" + (f", return {mean:,.1f}" if mean else "")


def keep(measured: dict[str, Any], curve: bytes) -> None:
    """Put a measurement in its place; all others stay as they are."""
    pair = (measured["env"], measured["algo"])
    known = {(env, algo) for algo, env in presets.names()} - {pair}
    others = [each for each in figures.entries() if (each["env"], each["algo"]) in known]
    whole = {"presets": sorted([*others, measured], key=lambda each: (each["env"], each["algo"]))}
    replace_durably(figures.MEASURED, (json.dumps(whole, indent=1) + "\n").encode())
    replace_durably(IMAGES / measured["curve"], curve)


def wanted(only: Sequence[str], algo: str | None) -> list[tuple[str, str]]:
    """The presets that are asked for, as (environment, algorithm)."""
    pairs = sorted((env, name) for name, env in presets.names())
    unknown = [part for part in only if not any(part.lower() in env.lower() for env, _ in pairs)]
    if unknown:
        known = ", ".join(sorted({env for env, _ in pairs}))
        raise SystemExit(f"there is no preset for {', '.join(unknown)}; there are presets for {known}")
    return [
        (env, name)
        for env, name in pairs
        if (not only or any(part.lower() in env.lower() for part in only)) and algo in (None, name)
    ]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", default=[], metavar="ENV", help="an environment, or part of its name"
    )
    parser.add_argument("--algo", metavar="NAME", help="only the presets of this algorithm")
    parser.add_argument("--seeds", type=int, default=figures.SEEDS, metavar="N", help="seeds of each preset")
    arguments = parser.parse_args()
    pairs, failed = wanted(arguments.only, arguments.algo), 0
    for at, (env, algo) in enumerate(pairs, 1):
        _say(f"[{at}/{len(pairs)}] {figures.command(env, algo, arguments.seeds)}")
        try:
            measured, curve = measure(env, algo, arguments.seeds)
        except Failed as error:
            _say(f"  {env}, {algo} was not measured: {error}")
            failed += 1
            continue
        keep(measured, curve)
        subprocess.run([sys.executable, PAGE], check=True, stdout=subprocess.DEVNULL)
        got = measured["return"]
        _say(
            f"  return {got['mean']:,.1f} ({got['low']:,.1f} to {got['high']:,.1f}), "
            f"{measured['steps']:,.0f} steps, {measured['seconds']:,.1f} s"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
