"""What a person sees while a run happens: a live panel, plain lines where there is no terminal, or JSON lines."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from millstream.core.ports import Clock
from millstream.core.topics import Report
from millstream.doors.panel import elapsed, evaluation_words, export_svg, line, panel
from millstream.telemetry.limits import limits
from millstream.telemetry.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

__all__ = ["Display", "JsonLines", "Lines", "display_for", "export_svg", "line", "panel"]


class Display:
    """The live panel, redrawn at most `hertz` times a second; events stand below it."""

    def __init__(self, console: Console, progress: Progress, clock: Clock, title: str, hertz: float = 8.0) -> None:
        self.console = console
        self.progress = progress
        self.clock = clock
        self.title = title
        self.events: deque[Report] = deque(maxlen=6)
        self._period = 1 / hertz
        self._drawn_at = -math.inf
        self._live: Live | None = None

    def write(self, report: Report) -> None:
        """Remember what stands below the panel; all else comes from the progress."""
        if report["kind"] == "event":
            self.events.append(report)

    def step(self) -> int:
        """Redraw when it is time; 1 when it was."""
        moment = self.clock.monotonic()
        if moment - self._drawn_at < self._period:
            return 0
        self._drawn_at = moment
        self._draw()
        return 1

    def close(self) -> None:
        """Draw the last state, which stays on the screen."""
        self._draw(ended=True)
        if self._live:
            self._live.stop()

    def _draw(self, ended: bool = False) -> None:
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=self.console, auto_refresh=False)  # no thread: the recorder's loop draws
            self._live.start()
        room = max(0, self.console.height - 14)
        events = list(self.events)[-room:] if room else []
        now = None if ended else self.clock.now()
        drawn = panel(self.progress, self.title, events, self.console.width, now, ended)
        self._live.update(drawn, refresh=True)


class Lines:
    """A plain line every few seconds and at events, for logs and pipes."""

    def __init__(self, console: Console, progress: Progress, clock: Clock, every: float = 5.0) -> None:
        self.console = console
        self.progress = progress
        self.clock = clock
        self.every = every
        self._said_at = -math.inf
        self._said = ""

    def write(self, report: Report) -> None:
        """Say events and evaluations at once."""
        if report["kind"] == "event":
            self._say(f"{elapsed(report, self.progress)}  {report['level']}: {report['text']}")
        elif report["kind"] == "evaluation":
            self._say(f"{elapsed(report, self.progress)}  evaluation {', '.join(evaluation_words(report))}")

    def step(self) -> int:
        """Say how the run is doing, first after the first update; 1 when it was time to."""
        moment = self.clock.monotonic()
        if not self.progress.updates or moment - self._said_at < self.every:
            return 0
        self._said_at = moment
        self._say(line(self.progress, self.clock.now()))
        return 1

    def close(self) -> None:
        """Say the last state, unless it has just been said."""
        last = line(self.progress)
        if last != self._said:
            self._say(last)

    def _say(self, text: str) -> None:
        self._said = text
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


class JsonLines:
    """One JSON object a line: the progress every second, and events, evaluations and checkpoints as they come."""

    def __init__(self, out: TextIO, progress: Progress, clock: Clock, every: float = 1.0) -> None:
        self.out = out
        self.progress = progress
        self.clock = clock
        self.every = every
        self._said_at = -math.inf

    def write(self, report: Report) -> None:
        """Pass on what happens seldom."""
        if report["kind"] in ("event", "evaluation", "checkpoint"):
            self._say({name: value for name, value in report.items() if name != "returns"})

    def step(self) -> int:
        """Tell the progress when it is time; 1 when it was."""
        moment = self.clock.monotonic()
        if moment - self._said_at < self.every:
            return 0
        self._said_at = moment
        self._tell()
        return 1

    def close(self) -> None:
        """Tell the last state."""
        self._tell()

    def _tell(self) -> None:
        now = self.clock.now()
        self._say({"kind": "progress", **self.progress.view(now), "limits": limits(self.progress, now), "at": now})

    def _say(self, value: Mapping[str, Any]) -> None:
        self.out.write(json.dumps(_strict(value)) + "\n")
        self.out.flush()


def display_for(console: Console, progress: Progress, clock: Clock, title: str) -> Display | Lines:
    """The live panel where it can be drawn, plain lines elsewhere."""
    drawable = console.is_terminal and not console.is_dumb_terminal and console.encoding.startswith("utf")
    return Display(console, progress, clock, title) if drawable else Lines(console, progress, clock)


def _strict(value: Any) -> Any:
    """The same without NaN and infinities, which are not JSON."""
    if isinstance(value, Mapping):
        return {str(key): _strict(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
