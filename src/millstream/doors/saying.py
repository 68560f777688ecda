"""Writing for people and for programs: tables, pairs of label and value, JSON."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

_WIDE = 200  # where there is no terminal, nothing needs to be cut
GOOD, BAD, FAINT = "#009E73", "#D55E00", "dim"


def console(stderr: bool = False) -> Console:
    """Where tables go; outside a terminal they are plain and wide."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    made = Console(file=stream, highlight=False)
    return made if made.is_terminal else Console(file=stream, highlight=False, width=_WIDE)


_programs: list[TextIO] = []
"""The standard output that programs read, while it is kept from everybody else."""


@contextmanager
def for_programs_only() -> Iterator[None]:
    """Keep standard output for `say_json`: whatever else writes there, C code too, writes to standard error."""
    try:
        ours = sys.stdout.fileno() == 1
    except (OSError, ValueError, AttributeError):
        ours = False
    if not ours:  # somebody listens in this very process
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
    except OSError:  # there is no standard error
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _programs.append(os.fdopen(os.dup(kept), "w", encoding="utf-8"))
    try:
        yield
    finally:
        sys.stdout.flush()
        try:
            _programs.pop().close()
        finally:
            os.dup2(kept, 1)
            os.close(kept)


def json_out() -> TextIO:
    """Where programs read."""
    return _programs[-1] if _programs else sys.stdout


def say_json(value: Any, out: TextIO | None = None) -> None:
    """One object, in one line, as strict JSON."""
    out = json_out() if out is None else out
    out.write(json.dumps(strict(value)) + "\n")
    out.flush()


def strict(value: Any) -> Any:
    """The same without NaN and infinities, which are not JSON."""
    if isinstance(value, Mapping):
        return {str(key): strict(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [strict(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def said(name: str, found: Sequence[Any], as_json: bool, nothing: str) -> bool:
    """Whether a list is told already: to programs as it is, to people when there is nothing in it."""
    if as_json:
        say_json({name: found})
    elif not found:
        print(nothing)
    return as_json or not found


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[str] = (), fold: str = "") -> None:
    """A table with a thin line below its head; numbers stand `right`, and the column `fold` takes several lines."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name in columns:
        made.add_column(
            name,
            justify="right" if name in right else "left",
            overflow="fold",
            no_wrap=name != fold,
            ratio=1 if name == fold else None,
        )
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    _print(made)


def pairs(rows: Iterable[tuple[str, Any]], indent: int = 2) -> None:
    """Labels and values under each other."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in rows:
        grid.add_row(" " * indent + label, value if isinstance(value, Text) else Text(str(value)))
    _print(grid)


def lines(rows: Sequence[tuple[str, str]], indent: int = 2) -> None:
    """The same, each in one line however long it is: a command or a path should stay whole for whoever copies it."""
    from rich.text import Text

    page, width = console(), max(len(label) for label, _ in rows)
    for label, value in rows:
        page.print(Text.assemble((f"{'':{indent}}{label:<{width}}  " if label else "", "dim"), value), soft_wrap=True)


def heading(text: str, style: str = "bold") -> None:
    """A line that stands out."""
    from rich.text import Text

    console().print(Text(text, style=style))


def _print(drawn: Any) -> None:
    """Rows are filled with blanks for the colours of a terminal; elsewhere they would only be in the way."""
    page = console()
    if page.is_terminal:
        page.print(drawn)
        return
    with page.capture() as capture:
        page.print(drawn)
    for line in capture.get().splitlines():
        print(line.rstrip())
