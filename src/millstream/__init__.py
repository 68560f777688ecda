"""Millstream: distributed reinforcement learning, from one laptop process to many machines.

run = millstream.train("CartPole-v1", algo="ppo", seed=1)
policy = millstream.load(run.folder)
action = policy.act(observation)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.forking import fork
    from millstream.library.agent import DistributedAgent
    from millstream.library.buffers import ReplayBufferPool
    from millstream.library.ensemble import AgentEnsemble
    from millstream.library.environment import DistributedEnvironment
    from millstream.loops.asynchronous import AsyncMainLoop
    from millstream.loops.distributed import DistributedMainLoop
    from millstream.loops.main import MainLoop
    from millstream.parameters.server import ParameterServer
    from millstream.playing import Player, load
    from millstream.running import Callbacks
    from millstream.training import Run, evaluate, record, resume, train

__version__ = "0.1.0"
__all__ = [
    "AgentEnsemble",
    "AsyncMainLoop",
    "Callbacks",
    "DistributedAgent",
    "DistributedEnvironment",
    "DistributedMainLoop",
    "MainLoop",
    "ParameterServer",
    "Player",
    "ReplayBufferPool",
    "Run",
    "__version__",
    "evaluate",
    "fork",
    "load",
    "record",
    "resume",
    "train",
]

_HOMES = {
    "AgentEnsemble": "library.ensemble",
    "AsyncMainLoop": "loops.asynchronous",
    "Callbacks": "running",
    "DistributedAgent": "library.agent",
    "DistributedEnvironment": "library.environment",
    "DistributedMainLoop": "loops.distributed",
    "MainLoop": "loops.main",
    "ParameterServer": "parameters.server",
    "Player": "playing",
    "ReplayBufferPool": "library.buffers",
    "Run": "training",
    "evaluate": "training",
    "fork": "forking",
    "load": "playing",
    "record": "training",
    "resume": "training",
    "train": "training",
}
"""Where each public name lives. They are fetched, and checked from then on, when first asked for: imports are light."""


def __getattr__(name: str) -> Any:
    """A public name, from the module that holds it (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'millstream' has no attribute {name!r}")
    from millstream.checking import checked

    value = globals()[name] = checked(getattr(import_module(f"millstream.{_HOMES[name]}"), name))
    return value


def __dir__() -> list[str]:
    """The public names, for completion."""
    return __all__
