"""How a run went, said once it is over."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from millstream.doors import saying
from millstream.doors.failing import INTERRUPTED
from millstream.doors.finding import called, shown
from millstream.telemetry.words import counted, number

if TYPE_CHECKING:
    from millstream.config import Experiment
    from millstream.training import Run


def finish(run: Run, experiment: Experiment, options: Namespace) -> int:
    """Print the result in the form that was asked for; the exit code."""
    if options.json_lines:
        saying.say_json({"kind": "result", **run.result})
    elif options.json:
        saying.say_json(run.result)
    elif not options.quiet:
        summary(run, experiment)
    return INTERRUPTED if run.interrupted else 0


def summary(run: Run, experiment: Experiment) -> None:
    """Solved or not, how fast, how good, where everything is, and what to type next."""
    result, name = run.result, called(run.folder)
    good, sentence = verdict(result, experiment.target)
    mark = {True: "✔ ", False: "✘ ", None: ""}[good]
    style = {True: f"bold {saying.GOOD}", False: f"bold {saying.BAD}", None: "bold"}[good]
    saying.heading("")
    saying.heading(f"{mark}{sentence}", style)
    speed = result["steps_per_second"]
    rows = [
        ("steps", f"{result['steps']:,} in {result['seconds']:.1f} s" + (f", {speed:,.0f} a second" if speed else ""))
    ]
    if result["train_return"] is not None:
        rows.append(("training", f"{number(result['train_return'])}, mean of the last 100 episodes"))
    rows += [("evaluation", judgement(result["evaluation"], experiment.evaluation.stochastic))]
    rows += [
        (label, shown(result[key]))
        for label, key in (("run", "folder"), ("plot", "plot"), ("video", "video"))
        if result[key]
    ]
    saying.lines([*rows, ("", ""), *_next(result, name)])


def verdict(result: Mapping[str, Any], target: float | None) -> tuple[bool | None, str]:
    """Whether it was solved (None: nobody said what that is), and a sentence."""
    what = f"{result['env']} with {result['algo']}"
    if result["stopped_by"] == "interrupted":
        return None, f"Interrupted, and saved: {what} after {result['steps']:,} steps."
    if result["stopped_by"] == "stopped":
        why = f" ({result['reason']})" if result.get("reason") else ""
        return None, f"Stopped{why}, and saved: {what} after {result['steps']:,} steps."
    if target is None:
        return None, f"Trained: {what}."
    mean, reached = (result["evaluation"] or {}).get("mean"), result["target_reached"]
    if reached and (mean is None or mean >= target):
        return True, f"Solved: {what} reached {target:g} after {reached['steps']:,} steps, {reached['seconds']:.1f} s."
    if reached:
        return False, f"Not solved: {what} reached {target:g} in training, but its evaluation is {number(mean)}."
    if mean is not None and mean >= target:
        return True, f"Solved: {what}, by its evaluation; training episodes did not reach {target:g}."
    return False, f"Not solved: {what} did not reach {target:g} in {result['steps']:,} steps."


def judgement(evaluation: Mapping[str, Any] | None, stochastic: bool = False) -> str:
    """An evaluation in a few words."""
    if not evaluation:
        return "none"
    kind = "sampled" if stochastic else "greedy"
    interval = f"{number(evaluation['low'])} to {number(evaluation['high'])}"
    return (
        f"{number(evaluation['mean'])} (95 % interval {interval}; {counted(evaluation['episodes'], 'episode')}, {kind})"
    )


def _next(result: Mapping[str, Any], name: str) -> list[tuple[str, str]]:
    rows = [("numbers", f"mill show {name}")]
    if not result["video"]:
        rows.append(("film it", f"mill record {name}"))
    more = {"target": " --target none", "steps": f" --total-steps {2 * max(1, result['steps'])}"}.get(
        result["stopped_by"], ""
    )
    rows.append(("train on", f"mill resume {name}{more}"))
    return rows
