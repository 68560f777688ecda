"""Who watches a run from the command line."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from typing import Any, TextIO

from millstream.config import Experiment
from millstream.core.ports import Clock
from millstream.core.topics import Report
from millstream.doors import saying
from millstream.running import Watch, Watcher
from millstream.telemetry.progress import Progress

_PATIENCE = 1.0
"""Seconds after which a run that has shown nothing yet is shown all the same."""


class Unhurried:
    """A display that is built when there is something to see, not while workers could be starting.

    So a run that fails at once leaves its error on the screen and nothing else.
    """

    def __init__(self, progress: Progress, clock: Clock, make: Callable[[], Watcher]) -> None:
        self._progress, self._clock, self._make = progress, clock, make
        self._since = clock.monotonic()
        self._display: Watcher | None = None
        self._held: list[Report] = []

    def write(self, report: Report) -> None:
        """Pass it on, or hold it until there is a display."""
        if self._display is None:
            self._held.append(report)
        else:
            self._display.write(report)

    def step(self) -> int:
        """Let the display draw."""
        if self._display is None:
            if not self._progress.made and self._clock.monotonic() - self._since < _PATIENCE:
                return 0
            self._display = self._make()
            for report in self._held:
                self._display.write(report)
            self._held.clear()
        return self._display.step()

    def close(self) -> None:
        """Draw the last state of what was shown."""
        if self._display is not None:
            self._display.close()


class _Page:
    """As much of rich's console as plain lines need, without the import."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def print(self, text: str, **_: Any) -> None:
        self._out.write(text + "\n")
        self._out.flush()


def watchers(experiment: Experiment, options: Namespace) -> list[Watch]:
    """What the options ask for: a live panel, plain lines, JSON lines, or nobody."""
    if options.quiet:
        return []
    if options.json_lines:
        return [_json_lines]
    out = sys.stderr if options.json else sys.stdout
    if options.json and not out.isatty():
        return []
    title = f"{experiment.env.id} · {experiment.algo} · {experiment.topology} · seed {experiment.seed}"
    return [lambda progress, clock: Unhurried(progress, clock, lambda: _display(out, progress, clock, title))]


def _json_lines(progress: Progress, clock: Clock) -> Watcher:
    from millstream.doors.display import JsonLines

    return JsonLines(saying.json_out(), progress, clock)


def _display(out: TextIO, progress: Progress, clock: Clock, title: str) -> Watcher:
    from millstream.doors.display import Lines, display_for

    if not out.isatty():
        page: Any = _Page(out)
        return Lines(page, progress, clock)
    from rich.console import Console

    return display_for(Console(file=out), progress, clock, title)


def telling(options: Namespace) -> Callable[[str], None]:
    """Says on a terminal what goes on after training; programs and files are not told."""

    def tell(text: str) -> None:
        if sys.stderr.isatty() and not (options.quiet or options.json or options.json_lines):
            sys.stderr.write(f"{text} ...\n")
            sys.stderr.flush()

    return tell
