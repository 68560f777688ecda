"""The picture of a run in a terminal: pure functions from the progress to something rich can draw, and to one line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.core.topics import Report
from millstream.telemetry.limits import limits
from millstream.telemetry.progress import Progress
from millstream.telemetry.words import brief, counted, duration, number, sparkline

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_ARROWS = {"rising": "↗", "flat": "→", "falling": "↘"}
_STAGES = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#0072B2")
"""Okabe and Ito's colours, one a stage; waiting is grey."""
_LEVELS = {"info": "dim", "warning": "#E69F00", "error": "bold #D55E00"}
_LESSON = {
    "policy_loss": "policy",
    "value_loss": "value",
    "entropy": "entropy",
    "approx_kl": "KL",
    "clipfrac": "clipped",
    "explained_variance": "explained",
    "grad_norm": "gradient",
}
_LABEL = 11


def panel(
    progress: Progress,
    title: str,
    events: Sequence[Report] = (),
    width: int = 80,
    now: float | None = None,
    ended: bool = False,
) -> RenderableType:
    """How a run is doing, drawn for so many columns; once it has ended, with the time taken, not the time left."""
    from rich import box
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    room = max(20, width - 4 - _LABEL)
    rows = Table.grid(padding=0, expand=True)
    rows.add_column(width=_LABEL, style="dim", no_wrap=True)
    rows.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for label, value in _rows(progress, room, now, ended):
        rows.add_row(label, value)
    sentence = Text(limits(progress, now), style="italic")
    framed = Panel(
        Group(rows, Text(), sentence),
        title=Text.assemble((title, "bold"), (" · PAUSED", "bold #E69F00") if progress.paused else ""),
        title_align="left",
        box=box.ROUNDED,
        border_style="#E69F00" if progress.paused else "#56B4E9",
        padding=(0, 1),
    )
    return Group(framed, *(_event(report, progress) for report in events))


def _rows(progress: Progress, room: int, now: float | None, ended: bool) -> Iterable[tuple[str, RenderableType]]:
    yield "progress", _bar(progress, room, now, ended)
    yield "return", _return(progress, room)
    if progress.evaluation:
        yield "evaluation", _fit(evaluation_words(progress.evaluation), room)
    yield "speed", _speed(progress, room, now)
    lesson = [f"{name} {number(progress.lesson[key])}" for key, name in _LESSON.items() if key in progress.lesson]
    yield "losses", _fit(lesson or ["none yet"], room)
    shares = progress.shares
    for role in ("actors", "learner"):
        yield role, _stages(shares[role], room)


def _bar(progress: Progress, room: int, now: float | None, ended: bool) -> Text:
    from rich.text import Text

    if progress.fraction is None:
        return Text(f"{progress.trained:,} steps in {duration(progress.seconds)}")
    left = progress.seconds_left(now)
    done = (
        f" {math.floor(100 * progress.fraction):3d} %  {brief(progress.trained)} of {brief(progress.total_steps or 0)}"
    )
    time = f"  in {duration(progress.seconds)}" if ended else f"  {duration(left)} left" if left is not None else ""
    time = "  paused" if progress.paused else time
    width = max(8, min(60, room - len(done) - len(f"{time:12}")))
    filled = round(progress.fraction * width)
    return Text.assemble(("━" * filled, "bold #009E73"), ("━" * (width - filled), "#555555"), done, (time, "bold"))


def _return(progress: Progress, room: int) -> Text:
    from rich.text import Text

    if progress.train_return is None:
        return Text("no episode has ended yet", style="dim")
    arrow = _ARROWS.get(progress.trend or "", " ")
    value = f"{number(progress.train_return)} {arrow}  "
    facts = [] if progress.settled else [f"{progress.episodes} of 100 episodes"]
    facts += [f"best {number(progress.best)}"] if progress.best is not None else []
    facts += [_target(progress)] if progress.target is not None else []
    after = "  " + " · ".join(facts) if facts else ""
    spark = sparkline(progress.curve.values(), max(6, min(48, room - len(value) - len(after))))
    return Text.assemble((value, "bold"), (spark, "#56B4E9"), after)


def _target(progress: Progress) -> str:
    if progress.target_reached:
        return f"target {progress.target:g} reached at {brief(progress.target_reached['steps'])}"
    return f"target {progress.target:g}"


def _speed(progress: Progress, room: int, now: float | None) -> str:
    speed = progress.steps_per_second(now)
    unknown = "paused" if progress.paused else "not measured yet"
    facts = [f"{speed:,.0f} steps/s" if speed is not None else unknown]
    lag = lag_words(progress.policy_lag, progress.policy_lag_max)
    facts += [lag, f"queue {progress.queue}"] if lag else []
    facts += [f"{brief(progress.stale)} stale"] if progress.stale else []
    facts += [f"{brief(progress.corrected)} corrected"] if progress.corrected else []
    facts += [counted(progress.episodes, "episode"), counted(progress.updates, "update")]
    return _fit(facts, room)


def _stages(shares: Mapping[str, float], room: int) -> Text:
    """A bar cut into stages, the largest first and waiting last, then as many of their names as there is room for."""
    from rich.text import Text

    if not shares:
        return Text("nothing measured yet", style="dim")
    order = sorted(shares, key=lambda stage: (stage == "wait", -shares[stage]))
    colours = {stage: "#888888" if stage == "wait" else _STAGES[i % len(_STAGES)] for i, stage in enumerate(order)}
    width = max(8, min(24, room // 4))
    text, filled, total = Text(), 0, 0.0
    for stage in order:  # ends are rounded, not lengths, or a full bar would end short
        total += shares[stage]
        end = round(width * min(1.0, total))
        text.append(("░" if stage == "wait" else "█") * (end - filled), colours[stage])
        filled = end
    text.append(" " * (width - filled))
    for stage in _named(order, shares, room - width):
        text.append(f"  {_share(stage, shares)}", colours[stage])
    return text


def _named(order: Sequence[str], shares: Mapping[str, float], room: int) -> list[str]:
    """The stages whose names fit, the smallest left out first."""
    named = [stage for stage in order if shares[stage] >= 0.005]
    while named and sum(len(_share(stage, shares)) + 2 for stage in named) > room:
        named.remove(min(named, key=shares.__getitem__))
    return named


def _share(stage: str, shares: Mapping[str, float]) -> str:
    return f"{stage} {100 * shares[stage]:.0f} %"


def _event(report: Report, progress: Progress) -> Text:
    from rich.text import Text

    style = _LEVELS.get(report["level"], "")
    text = Text.assemble((f" {elapsed(report, progress):>7}  ", "dim"), (report["text"], style))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def export_svg(
    path: Path | str,
    progress: Progress,
    title: str,
    events: Sequence[Report] = (),
    width: int = 100,
    now: float | None = None,
    command: str = "mill train",
) -> Path:
    """Draw the live panel into an SVG file, for pages about a run."""
    import io

    from rich.console import Console

    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(panel(progress, title, events, width, now))
    console.save_svg(str(path), title=command)
    return Path(path)


def line(progress: Progress, now: float | None = None) -> str:
    """How a run is doing, in one plain line."""
    speed, left = progress.steps_per_second(now), progress.seconds_left(now)
    budget = f" of {progress.total_steps:,} ({100 * (progress.fraction or 0):.0f} %)" if progress.total_steps else ""
    facts = [f"{duration(progress.seconds)}  steps {progress.trained:,}{budget}"]
    if progress.train_return is not None:
        facts.append(f"return {number(progress.train_return)}{f' {progress.trend}' if progress.trend else ''}")
    facts += ["paused"] if progress.paused else [f"{speed:,.0f} steps/s"] if speed is not None else []
    facts += [lag] if (lag := lag_words(progress.policy_lag, progress.policy_lag_max)) else []
    facts += [f"{duration(left)} left"] if left and progress.trained < (progress.total_steps or 0) else []
    return "  ".join(facts)


def lag_words(mean: float | None, most: float | None) -> str:
    """How many updates behind policies act: on average, and at most where that is more. Nothing before it is known."""
    if mean is None:
        return ""
    return f"policy lag {mean:.2f}" + (f" (at most {most:.0f})" if most is not None and most > mean else "")


def evaluation_words(report: Report) -> list[str]:
    """An evaluation in facts, the most telling first."""
    interval = f"{number(report['low'])} to {number(report['high'])}"
    return [
        f"{number(report['mean'])} ({interval})",
        counted(report["episodes"], "episode"),
        f"at {brief(report['steps'])} steps",
    ]


def elapsed(report: Report, progress: Progress) -> str:
    """When a report was made, since the start of the run."""
    return duration(report["at"] - progress.started_at)


def _fit(facts: Sequence[str], room: int) -> str:
    """As many facts as there is room for; half a number would mislead."""
    shown = list(facts)
    while len(shown) > 1 and len(" · ".join(shown)) > room:
        shown.pop()
    return " · ".join(shown)
