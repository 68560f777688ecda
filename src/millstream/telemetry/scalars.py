"""The names under which numbers are kept: those that people's dashboards know, and ours under `mill/`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from millstream.core.topics import Report
from millstream.telemetry.progress import Progress

_TWINS = {
    "charts/learning_rate": "train/learning_rate",
    "losses/policy_loss": "train/policy_gradient_loss",
    "losses/value_loss": "train/value_loss",
    "losses/approx_kl": "train/approx_kl",
    "losses/clipfrac": "train/clip_fraction",
    "losses/explained_variance": "train/explained_variance",
    "mill/updates": "train/n_updates",
}
"""CleanRL's name -> Stable-Baselines3's, where they mean the same number."""


def annotate(report: Report, progress: Progress) -> Report:
    """The report with what only the running summary knows; `progress` has already taken it."""
    if report["kind"] == "actor":
        note: dict[str, Any] = {
            "made": progress.made,
            "train_return": progress.train_return,
            "train_length": progress.train_length,
        }
    elif report["kind"] == "update":
        note = {
            "made": progress.made,
            "rate": progress.steps_per_second(),
            "overall": progress.overall_steps_per_second,
            "shares": progress.shares,
        }
    else:
        return report
    return {**report, "progress": note}


def step_of(report: Report) -> int:
    """Where on the x-axis a report stands: environment steps made for actors, trained for the rest."""
    if report["kind"] == "actor":
        return int(report.get("progress", report).get("made", report["steps"]))
    return int(report.get("steps", 0))


def scalars(report: Report) -> dict[str, float]:
    """The numbers of a report by name; what is unknown or not finite is left out."""
    make = {"actor": _of_actor, "update": _of_update, "evaluation": _of_evaluation}.get(report["kind"])
    named = make(report) if make else {}
    return {name: float(value) for name, value in named.items() if value is not None and math.isfinite(value)}


def with_twins(named: Mapping[str, float]) -> dict[str, float]:
    """The same numbers under Stable-Baselines3's names too, for trackers that both kinds of people look at."""
    twins = {twin: named[name] for name, twin in _TWINS.items() if name in named}
    if "losses/entropy" in named:
        twins["train/entropy_loss"] = -named["losses/entropy"]
    return {**named, **twins}


def _of_actor(report: Report) -> dict[str, Any]:
    episodes, note = report["episodes"], report.get("progress", {})
    if not episodes:
        return {}
    return {
        "charts/episodic_return": sum(episode[1] for episode in episodes) / len(episodes),
        "charts/episodic_length": sum(episode[2] for episode in episodes) / len(episodes),
        "rollout/ep_rew_mean": note.get("train_return"),
        "rollout/ep_len_mean": note.get("train_length"),
    }


def _of_update(report: Report) -> dict[str, Any]:
    note, hyper = report.get("progress", {}), dict(report["hyper"])
    named = {f"losses/{name}": value for name, value in report["lesson"].items()}
    named["charts/learning_rate"] = hyper.pop("learning_rate", None)
    named.update({f"hyper/{name}": value for name, value in hyper.items()})
    named |= {"charts/SPS": note.get("rate"), "time/fps": note.get("overall")}
    named |= {"mill/policy_lag": report["lag"], "mill/policy_lag_max": report["lag_max"], "mill/queue": report["queue"]}
    named |= {"mill/stale": report["stale"], "mill/corrected": report["corrected"]}
    named |= {"mill/updates": report["update"], "mill/samples": report["samples"]}
    for role, stages in note.get("shares", {}).items():
        named.update({f"mill/share_{role}_{stage}": share for stage, share in stages.items()})
    return named


def _of_evaluation(report: Report) -> dict[str, Any]:
    named = {f"mill/evaluation_{name}": report[name] for name in ("iqm", "low", "high")}
    return {"eval/mean_reward": report["mean"], **named}
