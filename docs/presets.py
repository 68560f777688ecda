"""The tables and curves of presets.md, from the presets and what was measured: `python docs/presets.py` writes them.

Each part stands between `<!-- presets NAME -->` and `<!-- /presets -->`. `make learn` measures, and then calls this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream import catalogue
from millstream.agents.figures import SOURCES
from millstream.doors.choose import figure, interval
from millstream.telemetry.words import brief

PAGE = Path(__file__).with_suffix(".md")
COLUMNS = (
    "environment", "algorithm", "return (95 % interval)", "steps", "seconds (cores)", "target reached", "published",
    "chosen on seeds",
)  # fmt: skip
_PLACE = re.compile(r"(<!-- presets (?P<name>\S+) -->\n).*?(<!-- /presets -->)", re.DOTALL)


def table() -> str:
    """A line a preset: what it reaches, and what others publish."""
    head = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"
    return "\n".join([head, *map(_row, catalogue.presets())])


def sources() -> str:
    """Who published, and what kind of figure."""
    return "\n".join(f"- [{each.name}]({each.url}): {each.about}." for each in SOURCES)


def players() -> str:
    """Snake as played by those who do not learn, beside the preset that does."""
    rows = ["| player | return (95 % interval) | food an episode | episodes |", "|---|---|---|---|"]
    for one in (one for one in catalogue.presets() if one["measured"] and one["measured"]["players"]):
        got = one["measured"]
        for each in got["players"]:
            rows.append(
                f"| {each['name']} | {interval(each['return'])} | {figure(each['food'])} | {each['episodes']:,} |"
            )
        count = f"{len(got['seeds'])} x {got['episodes']}"
        rows.append(f"| {one['algo']}, the preset for `{one['env']}` | {interval(got['return'])} |  | {count} |")
    return "\n".join(rows) if len(rows) > 2 else "Not measured yet."


def curves() -> str:
    """The curve of each preset, and the command that drew it."""
    drawn = [one for one in catalogue.presets() if one["measured"]]
    return "\n\n".join(_curve(one) for one in drawn) if drawn else "Not measured yet."


def _curve(one: Mapping[str, Any]) -> str:
    name, got = f"{one['algo']} on {one['env']}", one["measured"]
    return f"### {name}\n\n![{name}](images/presets/{got['curve']})\n\n```sh\n{one['command']}\n```"


def _row(one: Mapping[str, Any]) -> str:
    got = one["measured"]
    cells = [f"`{one['env']}`", one["algo"]]
    if got:
        seconds = f"{got['seconds']:,.1f} ({got['cores']})"
        cells += [interval(got["return"]), f"{got['steps']:,.0f}", seconds, _target(got)]
    else:
        cells += ["not measured", "", "", ""]
    published = "<br>".join(_published(each, one["env"]) for each in one["published"]) or "-"
    return f"| {' | '.join([*cells, published, one['chosen_on']])} |"


def _target(got: Mapping[str, Any]) -> str:
    target = got["target"]
    if target is None:
        return "no target"
    after = f", {brief(target['steps'])} steps" if target["reached"] else ""
    return f"{target['value']:g}: {target['reached']} of {len(got['seeds'])}{after}"


def _published(each: Mapping[str, Any], env: str) -> str:
    spread = "" if each["spread"] is None else f" ± {figure(each['spread'])}"
    other = "" if each["env"] == env else f", for {each['env']}"
    return f"{figure(each['value'])}{spread} after {brief(each['steps'])} steps ({each['source']}{other})"


PARTS = {"table": table, "sources": sources, "players": players, "curves": curves}


def renewed(text: str) -> str:
    """The page with its parts as they should be now."""
    return _PLACE.sub(lambda found: f"{found[1]}{PARTS[found['name']]()}\n{found[3]}", text)


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    if renewed(text) != text:
        PAGE.write_text(renewed(text), encoding="utf-8")
        print(PAGE.name)
