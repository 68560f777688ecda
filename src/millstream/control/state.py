"""What should be: one frozen value that commands change and the supervisor follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from millstream.core.errors import ConfigError
from millstream.core.topics import Report

MOST_ACTORS = 16


@dataclass(frozen=True, slots=True)
class Desired:
    """How a run should be. The revision grows with each change, so that the newer of two is known."""

    actors: int = 1
    learner: int = 1
    evaluator: int = 0
    paused: bool = False
    stopping: bool = False
    stopped_by: str | None = None
    """What stops the run: target, steps, stopped, interrupted or callback."""
    reason: str | None = None
    """Why, in somebody's own words."""
    fixed: bool = False
    """Whether the workers are parts of one process, so that their number cannot change."""
    checkpoints: int = 0
    """How many checkpoints were asked for by hand."""
    revision: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.actors <= MOST_ACTORS:
            raise ConfigError(f"a run has 0 to {MOST_ACTORS} actors, got {self.actors}")
        if not 0 <= self.learner <= 1:
            raise ConfigError(f"a run has 0 or 1 learner, got {self.learner}")

    @property
    def workers(self) -> Mapping[str, int]:
        """How many of each role should run; the learner comes first, because actors wait for its policy."""
        return {"learner": self.learner, "actor": self.actors, "evaluator": self.evaluator}

    def change(self, **changes: Any) -> Desired:
        """The next revision."""
        return replace(self, **changes, revision=self.revision + 1)


BEGIN = "begin"
"""Not a wish but the state from which wishes count: written on a durable wire where a run starts or is resumed."""


def beginning(desired: Desired) -> Report:
    """The message that tells workers how a run should be from now on."""
    return {"command": BEGIN, "desired": asdict(desired)}


def begun(message: Report) -> Desired | None:
    """The state that such a message tells; None when it is another one."""
    if message.get("command") != BEGIN:
        return None
    try:
        return Desired(**message["desired"])
    except (KeyError, TypeError) as error:
        raise ConfigError(f"a beginning that cannot be read: {error}") from error


class Intent:
    """The one place where the desired state of a run is held; whoever needs it holds this."""

    def __init__(self, desired: Desired) -> None:
        self.desired = desired
