"""Pictures of runs: one run with all its curves, several seeds with their interval.

Figures are built without pyplot, whose import costs more than the drawing and which keeps every figure alive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from millstream.core.errors import ConfigError, StorageError
from millstream.core.statistics import bootstrap
from millstream.telemetry import store
from millstream.telemetry.progress import WINDOW

FORMATS = (".png", ".svg", ".pdf", ".jpg")
"""How the name of a plot can end."""
BLUE, ORANGE, GREEN, RED, PURPLE, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#666666"
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, "#56B4E9", "#000000")
"""Okabe and Ito's palette: told apart by the colour-blind as well."""
_INK, _FAINT = "#222222", "#DDDDDD"
_DOTS = 6000
_GRID = 200
_INTERVAL = "95 % interval of the mean"
NO_EPISODE = "no episode has ended yet"
EARLY = "  (a seed that ended early counts on with its last value)"


def plot_run(store_path: Path | str, out: Path | str, title: str, target: float | None = None) -> Path:
    """Draw one run: returns above, what happened inside below."""
    figure = _figure(10, 6.6)
    grid = figure.add_gridspec(2, 4, height_ratios=(1.9, 1))
    _draw_returns(figure.add_subplot(grid[0, :]), store_path, title, target)
    _draw_losses(figure.add_subplot(grid[1, 0]), store_path)
    _draw_exploring(figure.add_subplot(grid[1, 1]), store_path)
    _draw_curve(figure.add_subplot(grid[1, 2]), store_path, "charts/SPS", "steps a second", GREEN)
    _draw_curve(figure.add_subplot(grid[1, 3]), store_path, "mill/policy_lag", "policy lag, updates", PURPLE)
    return _save(figure, out)


def plot_runs(
    runs: Sequence[tuple[str, Sequence[Path | str]]], out: Path | str, title: str = "", target: float | None = None
) -> Path:
    """Draw several experiments, each a label and the stores of its seeds: mean of the seeds and its 95 % interval."""
    figure = _figure(9, 5)
    axes = figure.add_subplot()
    early = [
        _draw_seeds(axes, label, paths, COLOURS[index % len(COLOURS)]) for index, (label, paths) in enumerate(runs)
    ]
    if not axes.get_lines():
        _say(axes, NO_EPISODE)
    _draw_target(axes, target)
    _dress(axes, title, f"environment steps{EARLY if any(early) else ''}", f"return, mean of {WINDOW} episodes")
    _legend(axes)
    return _save(figure, out)


def running_mean(values: Any, window: int = WINDOW) -> Any:
    """The mean of the last `window` values at each place, of fewer at the beginning."""
    sums = np.concatenate([[0.0], np.cumsum(np.asarray(values, np.float64))])
    ends = np.arange(1, len(sums))
    starts = np.maximum(0, ends - window)
    return (sums[ends] - sums[starts]) / (ends - starts)


# --- one run -----------------------------------------------------------------------------------------------------


def _draw_returns(axes: Any, path: Path | str, title: str, target: float | None) -> None:
    steps, returns = store.returns(path)
    if len(steps):
        pick = np.linspace(0, len(steps) - 1, min(len(steps), _DOTS)).astype(int)
        axes.plot(steps[pick], returns[pick], ".", color=BLUE, alpha=0.16, ms=4, mew=0, rasterized=True, zorder=1)
        axes.plot([], [], "o", color=BLUE, alpha=0.4, ms=4, mew=0, label="training episode")
        axes.plot(*_smooth(steps, returns), color=BLUE, lw=2.2, label=f"mean of {WINDOW}", zorder=3)
    evaluations = store.evaluations(path)
    if not len(steps) and not evaluations:  # who learns from recorded data has evaluations alone
        _say(axes, NO_EPISODE)
    _draw_evaluations(axes, evaluations)
    _draw_target(axes, target)
    _dress(axes, title, "environment steps", "episodic return")
    _legend(axes)


def _draw_evaluations(axes: Any, evaluations: Sequence[Mapping[str, Any]]) -> None:
    if not evaluations:
        return
    steps = [row["step"] for row in evaluations]
    means, lows, highs = (np.array([row[name] for row in evaluations], float) for name in ("mean", "low", "high"))
    errors = np.maximum(0, np.stack([means - lows, highs - means]))
    axes.errorbar(
        steps, means, errors, fmt="D", color=RED, ms=6, mec="white", mew=0.8, lw=1.6, capsize=3.5, zorder=4,
        label="evaluation, 95 % interval", clip_on=False,
    )  # fmt: skip


def _draw_target(axes: Any, target: float | None) -> None:
    if target is not None:
        axes.axhline(target, color=GREY, lw=1.2, ls=(0, (5, 3)), zorder=2, label=f"target {target:g}")


def _draw_losses(axes: Any, path: Path | str) -> None:
    """Two scales, since a value loss is often a thousand times a policy loss; each axis wears its line's colour."""
    _draw_twins(axes, path, ("losses/policy_loss", "policy loss", BLUE), ("losses/value_loss", "value loss", ORANGE))


def _draw_exploring(axes: Any, path: Path | str) -> None:
    _draw_twins(axes, path, ("losses/entropy", "entropy", BLUE), ("losses/approx_kl", "KL", ORANGE))


def _draw_twins(axes: Any, path: Path | str, left: tuple[str, str, str], right: tuple[str, str, str]) -> None:
    other = axes.twinx()
    for place, (name, _, colour) in ((axes, left), (other, right)):
        _line(place, path, name, colour)
    _dress(axes, "", "", "")
    _dress(other, "", "", "")
    other.grid(visible=False)
    for place, (_, _, colour) in ((axes, left), (other, right)):
        place.tick_params(axis="y", colors=colour)
    axes.set_title(left[1], loc="left", color=BLUE, fontsize=9.5)
    axes.set_title(right[1], loc="right", color="#A06A00", fontsize=9.5)
    other.tick_params(axis="y", colors="#A06A00")


def _draw_curve(axes: Any, path: Path | str, name: str, title: str, colour: str) -> None:
    _line(axes, path, name, colour)
    _dress(axes, "", "", "")
    axes.set_title(title, loc="left", color=_INK, fontsize=9.5)
    axes.set_ylim(bottom=0)
    if not axes.get_lines():
        axes.set_yticks([])


def _line(axes: Any, path: Path | str, name: str, colour: str) -> None:
    rows = store.scalars(path, name, points=400)
    if rows:
        axes.plot([row["step"] for row in rows], [row["value"] for row in rows], color=colour, lw=1.3)


# --- several seeds -----------------------------------------------------------------------------------------------


def _draw_seeds(axes: Any, label: str, paths: Sequence[Path | str], colour: str) -> bool:
    """Whether some seeds ended long before others: those count on with the value that they ended with."""
    curves = [_smooth(steps, returns) for steps, returns in map(store.returns, paths) if len(steps)]
    if not curves:
        return False
    ends = [steps[-1] for steps, _ in curves]
    grid = np.linspace(max(steps[0] for steps, _ in curves), max(ends), _GRID)
    # a seed that reached its target stops there; without its last value the mean would be of the slow seeds alone
    values = np.stack([np.interp(grid, steps, means) for steps, means in curves])  # [seeds, grid]
    for steps, means in curves:
        axes.plot(steps, means, color=colour, lw=0.7, alpha=0.4, zorder=2)
    name = f"{label} ({len(curves)} seed{'s' if len(curves) > 1 else ''})"
    axes.plot(grid, values.mean(axis=0), color=colour, lw=2.4, label=name, zorder=3)
    if len(curves) > 1:
        low, high = np.array([bootstrap(column, draws=500) for column in values.T.tolist()]).T
        axes.fill_between(grid, low, high, color=colour, alpha=0.2, lw=0, zorder=1, label=_once(axes, _INTERVAL))
    return bool(min(ends) < 0.99 * max(ends))


def _once(axes: Any, label: str) -> str:
    """The label, hidden when the legend has it already."""
    return f"_{label}" if label in axes.get_legend_handles_labels()[1] else label


def _smooth(steps: Any, returns: Any) -> tuple[Any, Any]:
    """The running mean against steps, at most 2000 points. Episodes of one report share a step: the last speaks."""
    last = np.append(np.flatnonzero(np.diff(steps)), len(steps) - 1)
    thin = last[np.unique(np.linspace(0, len(last) - 1, 2000).astype(int))]
    return steps[thin], running_mean(returns)[thin]


# --- looks -------------------------------------------------------------------------------------------------------


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=130, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _dress(axes: Any, title: str, x: str, y: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_title(title, loc="left", color=_INK, fontsize=12.5, fontweight="bold", pad=28 if x else None)
    axes.set_xlabel(x, color=GREY)
    axes.set_ylabel(y, color=GREY)
    for axis, ticks in ((axes.xaxis, 8 if x else 3), (axes.yaxis, 7 if x else 4)):
        axis.set_major_formatter(FuncFormatter(_tick))
        axis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
    axes.grid(visible=True, color=_FAINT, lw=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=GREY, labelsize=9 if x else 8, length=0)
    axes.spines[:].set_visible(False)
    axes.margins(x=0.015)


def _say(axes: Any, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=GREY, fontsize=12)


def _legend(axes: Any) -> None:
    """Between title and axes, where no curve can run beneath it."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1), ncols=5, frameon=False, borderaxespad=0.2, borderpad=0.1,
            fontsize=9.5, handlelength=1.6, columnspacing=1.8, labelcolor=_INK,
        )  # fmt: skip


def _tick(value: float, _: int = 0) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _save(figure: Any, out: Path | str) -> Path:
    path = Path(out)
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"a plot ends in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, got {str(path)!r}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    except OSError as error:
        raise StorageError(f"cannot write the plot {path}: {error.strerror or error}") from error
    return path
