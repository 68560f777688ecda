"""Algorithms by name. Others join by an entry point of the group `millstream.agents`, or as `module:Class`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

from millstream.agents.distributions import for_space
from millstream.agents.features import Features
from millstream.agents.networks.registry import build
from millstream.core import settings
from millstream.core.errors import AgentError, ConfigError, UnknownName
from millstream.core.ports import Agent
from millstream.core.spec import EnvSpec

_AGENTS = {
    "ppo": "millstream.agents.ppo:PPO",
    "a2c": "millstream.agents.a2c:A2C",
    "reinforce": "millstream.agents.reinforce:Reinforce",
    "impala": "millstream.agents.impala:Impala",
    "dqn": "millstream.agents.dqn:DQN",
    "sac": "millstream.agents.sac:SAC",
    "td3": "millstream.agents.td3:TD3",
    "cloning": "millstream.agents.cloning:Cloning",
}
_OF_CLASS = ("Hyper", "window", "init", "policy", "carry", "act", "prepare", "gradients", "apply")
_ATTRIBUTES = (*_OF_CLASS, "max_lag", "sequences")  # the last two may be decided when it is built


def names() -> list[str]:
    """Every algorithm that can be asked for by name."""
    return sorted({*_AGENTS, *(point.name for point in entry_points(group="millstream.agents"))})


def find(name: str) -> Any:
    """The class of an algorithm."""
    if ":" in name:
        return _complete(name, load(name, "algorithm"), _OF_CLASS)
    if name in _AGENTS:
        return load(_AGENTS[name], "algorithm")
    for point in entry_points(group="millstream.agents", name=name):
        return _complete(name, point.load(), _OF_CLASS)
    raise UnknownName.of("algorithm", name, names(), "(your own: module:Class)")


def make(
    name: str, spec: EnvSpec, network: Mapping[str, Any] | None = None, hyper: Mapping[str, Any] | None = None
) -> Agent[Any]:
    """An agent for a spec; `network` holds the settings of its network, `hyper` those of its own that shape one."""
    check(name, spec)
    kind = find(name)
    shape = dict(network or {})
    if hasattr(kind, "build"):
        built = kind.build(spec, settings.parse(kind.Hyper, hyper or {}, "hyper"), **shape)
    else:
        built = build(spec, for_space(spec.action), **shape)
    given = (spec, built, Features(spec, images=built.images))
    try:
        inspect.signature(kind).bind(*given)
    except TypeError as error:
        raise AgentError(f"{name} cannot be built from (spec, network, features): {error}") from error
    agent: Agent[Any] = _complete(name, kind(*given), _ATTRIBUTES)
    return agent


def selective(name: str) -> bool:
    """Whether an algorithm has a say in what it learns; most take any space there is."""
    return hasattr(find(name), "refuses")


def check(name: str, spec: EnvSpec) -> None:
    """Refuse a spec that the algorithm cannot learn, and say which can."""

    def refusal(name: str) -> str | None:
        return find(name).refuses(spec) if selective(name) else None

    if reason := refusal(name):
        able = [
            other for other in sorted(_AGENTS) if not refusal(other) and not getattr(find(other), "recorded", False)
        ]
        raise ConfigError(f"{name} {reason}, {spec.id} takes {spec.action}; try another --algo: {', '.join(able)}")


def _complete(name: str, found: Any, attributes: Sequence[str]) -> Any:
    """What was found, if it has all that an agent has."""
    if not callable(found) and attributes is _OF_CLASS:
        raise AgentError(f"{name} is not an agent but {found!r}; name a class")
    missing = [attribute for attribute in attributes if not hasattr(found, attribute)]
    if missing:
        raise AgentError(f"{name} is not an agent: it lacks {', '.join(missing)}; see core/ports.py, Agent")
    return found


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
