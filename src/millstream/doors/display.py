"""What a person sees while a run happens: a live panel, plain lines where there is no terminal, or JSON lines."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, TextIO

from millstream.core.ports import Clock
from millstream.core.topics import Report
from millstream.doors import saying
from millstream.doors.panel import elapsed, evaluation_words, export_svg, line, panel
from millstream.telemetry.limits import limits
from millstream.telemetry.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

__all__ = ["Display", "JsonLines", "Lines", "display_for", "export_svg", "line", "panel"]


class Beat:
    """Says when it is time again."""

    def __init__(self, clock: Clock, every: float) -> None:
        self._clock, self._every = clock, every
        self._last = -math.inf

    def due(self) -> bool:
        """Whether so many seconds have passed; if so, they begin anew."""
        moment = self._clock.monotonic()
        if moment - self._last < self._every:
            return False
        self._last = moment
        return True


class Display:
    """The live panel, redrawn at most `hertz` times a second; events stand below it."""

    def __init__(self, console: Console, progress: Progress, clock: Clock, title: str, hertz: float = 8.0) -> None:
        self.console = console
        self.progress = progress
        self.clock = clock
        self.title = title
        self.events: deque[Report] = deque(maxlen=6)
        self._beat = Beat(clock, 1 / hertz)
        self._live: Live | None = None

    def write(self, report: Report) -> None:
        """Remember what stands below the panel; all else comes from the progress."""
        if report["kind"] == "event":
            self.events.append(report)

    def step(self) -> int:
        """Redraw when it is time; 1 when it was."""
        if not self._beat.due():
            return 0
        self._draw()
        return 1

    def close(self) -> None:
        """Draw the last state, which stays on the screen."""
        self._draw(ended=True)
        if self._live:
            self._live.stop()

    def _draw(self, ended: bool = False) -> None:
        from rich.console import Group
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=self.console, auto_refresh=False)  # no thread: the recorder's loop draws
            self._live.start()
        room = max(0, self.console.height - 14)
        events = list(self.events)[-room:] if room else []
        now = None if ended else self.clock.now()
        drawn = panel(self.progress, self.title, events, self.console.width, now, ended)
        # the cursor rests on a line of its own, or the terminal's ^C would wrap, and the next frame leave a border
        self._live.update(drawn if ended else Group(drawn, ""), refresh=True)


class Lines:
    """A plain line every few seconds and at events, for logs and pipes."""

    def __init__(self, console: Console, progress: Progress, clock: Clock, every: float = 5.0) -> None:
        self.console = console
        self.progress = progress
        self.clock = clock
        self._beat = Beat(clock, every)
        self._said = ""

    def write(self, report: Report) -> None:
        """Say events and evaluations at once."""
        if report["kind"] == "event":
            self._say(f"{elapsed(report, self.progress)}  {report['level']}: {report['text']}")
        elif report["kind"] == "evaluation":
            self._say(f"{elapsed(report, self.progress)}  evaluation {', '.join(evaluation_words(report))}")

    def step(self) -> int:
        """Say how the run is doing, first after the first update; 1 when it was time to."""
        if not self.progress.updates or not self._beat.due():
            return 0
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
        self._beat = Beat(clock, every)

    def write(self, report: Report) -> None:
        """Pass on what happens seldom."""
        if report["kind"] in ("event", "evaluation", "checkpoint"):
            saying.say_json({name: value for name, value in report.items() if name != "returns"}, self.out)

    def step(self) -> int:
        """Tell the progress when it is time; 1 when it was."""
        if not self._beat.due():
            return 0
        self._tell()
        return 1

    def close(self) -> None:
        """Tell the last state."""
        self._tell()

    def _tell(self) -> None:
        now = self.clock.now()
        told = {"kind": "progress", **self.progress.view(now), "limits": limits(self.progress, now), "at": now}
        saying.say_json(told, self.out)


def display_for(console: Console, progress: Progress, clock: Clock, title: str) -> Display | Lines:
    """The live panel where it can be drawn, plain lines elsewhere."""
    drawable = console.is_terminal and not console.is_dumb_terminal and console.encoding.startswith("utf")
    return Display(console, progress, clock, title) if drawable else Lines(console, progress, clock)
