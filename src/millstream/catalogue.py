"""What there is to choose from: environments, algorithms and presets as plain values, for every door."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from millstream.agents import figures
from millstream.agents import presets as tuned
from millstream.agents import registry as agents
from millstream.core import native, settings
from millstream.envs import check, registry


def environments(containing: str = "") -> list[dict[str, str]]:
    """Known environments whose name, description or extra holds the text: `id`, `about`, `extra` that it needs."""
    wanted = containing.lower()
    return [
        {"id": id, "about": about, "extra": extra}
        for id, about, extra in registry.names()
        if any(wanted in text.lower() for text in (id, about, extra))
    ]


def examine(env: str) -> tuple[list[str], list[str]]:
    """What is wrong with an environment, and what is only worth knowing; UnknownName when there is none."""
    registry.check(env)
    findings = check.check(env)
    notes = [finding.removeprefix(check.NOTE) for finding in findings if finding.startswith(check.NOTE)]
    return [finding for finding in findings if not finding.startswith(check.NOTE)], notes


def algorithms() -> list[dict[str, str]]:
    """Every algorithm: `name` and the first line `about` it."""
    return [{"name": name, "about": _first_line(agents.find(name))} for name in agents.names()]


def algorithm(name: str) -> dict[str, Any]:
    """One algorithm with its hyper-parameters, each with default, bounds, meaning and who takes a new value."""
    kind = agents.find(name)
    return {"name": name, "about": _first_line(kind), "hyper": [asdict(each) for each in settings.describe(kind.Hyper)]}


def presets(containing: str = "") -> list[dict[str, Any]]:
    """Every tuned pair whose environment's name holds the text: its settings, what it reaches, how to repeat that."""
    pairs = sorted((env, algo) for algo, env in tuned.names() if containing.lower() in env.lower())
    return [_preset(env, algo) for env, algo in pairs]


def _preset(env: str, algo: str) -> dict[str, Any]:
    measured = figures.measured(env, algo)
    return {
        "env": env,
        "algo": algo,
        "settings": dict(tuned.preset(env, algo)),
        "chosen_on": tuned.chosen_on(env, algo),
        "measured": measured,
        "published": figures.published(env, algo),
        "command": measured["command"] if measured else figures.command(env, algo),
    }


def compiled() -> bool:
    """Whether the parts that are written in C were compiled at installation; without them NumPy and torch serve."""
    return native.LIBRARY is not None


def _first_line(kind: Any) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0] if kind.__doc__ else ""
