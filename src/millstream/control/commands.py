"""What people and assistants may ask of a run. Each command is declared once; every door offers it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from millstream.control.state import Desired
from millstream.core.errors import ConfigError, RunError, UnknownName

C = TypeVar("C", bound=type)


class Command(Protocol):
    """A change of what should be. Its docstring is its help text at every door."""

    name: ClassVar[str]

    def apply(self, desired: Desired) -> Desired:
        """What should be from now on."""


REGISTRY: dict[str, type[Command]] = {}
_TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}


def command(name: str) -> Callable[[C], C]:
    """Declare a command under a name."""

    def declare(cls: C) -> C:
        cls.name = name  # type: ignore[attr-defined]
        REGISTRY[name] = cls
        return cls

    return declare


@command("pause")
@dataclass(frozen=True)
class Pause:
    """Let the run wait after its current step; nothing is lost."""

    def apply(self, desired: Desired) -> Desired:
        """Paused from now on."""
        return desired if desired.paused else desired.change(paused=True)


@command("resume")
@dataclass(frozen=True)
class Resume:
    """Let a paused run go on."""

    def apply(self, desired: Desired) -> Desired:
        """No longer paused."""
        return desired.change(paused=False) if desired.paused else desired


@command("stop")
@dataclass(frozen=True)
class Stop:
    """End the run after a last checkpoint; it can be resumed later."""

    reason: str = "asked to stop"
    """Why, for the journal and for people."""

    def apply(self, desired: Desired) -> Desired:
        """Stopping, and the first reason stays."""
        return desired if desired.stopping else desired.change(stopping=True, stopped_by="stopped", reason=self.reason)


@command("scale")
@dataclass(frozen=True)
class Scale:
    """Set how many actors should run, 0 to 16."""

    actors: int = dataclasses.field(metadata={"example": 4})
    """How many actors there should be."""

    def apply(self, desired: Desired) -> Desired:
        """That many actors."""
        if desired.fixed:
            raise RunError("an inline run cannot be scaled: its actors are parts of one process; use processes")
        return desired if desired.actors == self.actors else desired.change(actors=self.actors)


@command("checkpoint")
@dataclass(frozen=True)
class Checkpoint:
    """Write a checkpoint at the end of the current update."""

    def apply(self, desired: Desired) -> Desired:
        """One checkpoint more than before."""
        return desired.change(checkpoints=desired.checkpoints + 1)


def parse(request: Mapping[str, Any]) -> Command:
    """The command that a request {"command": name, field: value, ...} speaks of; the error says what was wrong."""
    name = request.get("command")
    if not isinstance(name, str) or name not in REGISTRY:
        raise UnknownName.of("command", str(name), REGISTRY)
    cls: Any = REGISTRY[name]
    fields = {field.name: field for field in dataclasses.fields(cls)}
    given = {key: value for key, value in request.items() if key != "command"}
    for key, value in given.items():
        if key not in fields:
            raise UnknownName.of(f"field of the command {name}:", key, fields)
        _check(name, fields[key], value)
    missing = [key for key, field in fields.items() if field.default is dataclasses.MISSING and key not in given]
    if missing:
        raise ConfigError(f"the command {name} needs {', '.join(missing)}")
    parsed: Command = cls(**given)
    return parsed


def as_request(asked: Command) -> dict[str, Any]:
    """A command as plain values, the inverse of `parse`."""
    return {"command": asked.name, **dataclasses.asdict(asked)}  # type: ignore[call-overload]


def _check(name: str, field: dataclasses.Field[Any], value: Any) -> None:
    wanted = _TYPES.get(str(field.type))
    fits = wanted is None or (isinstance(value, wanted) and (bool in wanted or not isinstance(value, bool)))
    if not fits:
        raise ConfigError(f"{field.name} of the command {name} is of type {field.type}, got {value!r}")
