"""The topics of the bus, and what each does when it is full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from millstream.core.data import Policy, Rollout

M = TypeVar("M")
Report: TypeAlias = Mapping[str, Any]
"""Plain JSON values."""


@dataclass(frozen=True, slots=True)
class Topic(Generic[M]):
    """A named stream of one kind of message."""

    name: str
    full: Literal["refuse", "drop_oldest"] = "refuse"


EXPERIENCES: Topic[Rollout] = Topic("experiences")
MODEL_UPDATES: Topic[Policy] = Topic("model_updates")
COMMANDS: Topic[Report] = Topic("commands.control")
METRICS_TRAINING: Topic[Report] = Topic("metrics.training", full="drop_oldest")
METRICS_ACTORS: Topic[Report] = Topic("metrics.actors", full="drop_oldest")
