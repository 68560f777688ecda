"""The tables of settings in these pages, from the code: `python docs/settings.py` writes them, `--check` compares.

A table stands between `<!-- settings NAME -->` and `<!-- /settings -->`; NAME is an algorithm, `experiment`, or
parts of that: `experiment:kafka,log.keep`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from millstream.agents import registry
from millstream.config import Experiment
from millstream.core.settings import describe

DOCS = Path(__file__).parent
_PLACE = re.compile(r"(<!-- settings (?P<name>\S+) -->\n).*?(<!-- /settings -->)", re.DOTALL)


def table(name: str) -> str:
    """One table: name, default, bounds, meaning."""
    which, _, parts = name.partition(":")
    kind = Experiment if which == "experiment" else registry.find(which).Hyper
    rows = ["| name | default | bounds | meaning |", "|---|---|---|---|"]
    rows += [
        f"| `{each.name}` | {_value(each.default)} | {each.bounds or each.type} | {each.meaning} |"
        for each in describe(kind)
        if not parts or any(f"{each.name}.".startswith(f"{part}.") for part in parts.split(","))
    ]
    return "\n".join(rows) + "\n"


def renewed(text: str) -> str:
    """A page with its tables as the code has them now."""
    return _PLACE.sub(lambda found: f"{found[1]}{table(found['name'])}{found[3]}", text)


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return f"`{','.join(map(str, value))}`" if value else "none"
    if value is None or value == {}:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def main(check: bool) -> int:
    """Write, or name the pages that are out of date."""
    stale = []
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if renewed(text) != text:
            stale.append(page.relative_to(DOCS))
            if not check:
                page.write_text(renewed(text), encoding="utf-8")
    print(*stale, sep="\n", end="\n" if stale else "")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
