"""Algorithms by name. Others join by an entry point of the group `millstream.agents`, or as `module:Class`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from millstream.agents.distributions import for_space
from millstream.agents.features import Features
from millstream.agents.networks.registry import build
from millstream.core.errors import AgentError, UnknownName
from millstream.core.ports import Agent
from millstream.core.spec import EnvSpec

_AGENTS = {
    "ppo": "millstream.agents.ppo:PPO",
    "impala": "millstream.agents.impala:Impala",
}
_ATTRIBUTES = (
    "Hyper",
    "window",
    "max_lag",
    "sequences",
    "init",
    "policy",
    "carry",
    "act",
    "prepare",
    "gradients",
    "apply",
)


def names() -> list[str]:
    """Every algorithm that can be asked for by name."""
    return sorted({*_AGENTS, *(point.name for point in entry_points(group="millstream.agents"))})


def find(name: str) -> Any:
    """The class of an algorithm."""
    if ":" in name:
        return load(name, "algorithm")
    if name in _AGENTS:
        return load(_AGENTS[name], "algorithm")
    for point in entry_points(group="millstream.agents", name=name):
        return point.load()
    raise UnknownName.of("algorithm", name, names(), "(your own: module:Class)")


def make(name: str, spec: EnvSpec, network: Mapping[str, Any] | None = None) -> Agent[Any]:
    """An agent for a spec; `network` holds the settings of its network."""
    kind = find(name)
    if not callable(kind):
        raise AgentError(f"{name} is not an agent but {kind!r}; name a class")
    built = build(spec, for_space(spec.action), **(network or {}))
    agent = kind(spec, built, Features(spec, images=built.images))
    missing = [attribute for attribute in _ATTRIBUTES if not hasattr(agent, attribute)]
    if missing:
        raise AgentError(f"{name} is not an agent: it lacks {', '.join(missing)}; see core/ports.py, Agent")
    return agent


def load(path: str, kind: str) -> Any:
    """What `module:name` points to."""
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise UnknownName(
            f"the {kind} {path!r} cannot be imported: {error}; run from the folder that holds it"
        ) from error
    except (AttributeError, ValueError, TypeError) as error:  # the last two: an empty or relative module
        raise UnknownName(f"the {kind} {path!r} cannot be found: {error}") from error
