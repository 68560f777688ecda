"""The error tree, drawn once. An error says what was got and what to do; a door turns it into an answer.

MillError
├── ConfigError      a key, type or range of the experiment is wrong
│   └── WrongArgument  an argument of a call is not what its signature says
├── UnknownName      nothing is registered under that name
├── MissingPart      an optional package is not installed
├── EnvError         the environment broke its promise
│   └── EnvLost      a process of the environment was killed; it can be tried again
├── AgentError       the agent broke its promise
├── Diverged         the numbers of learning are no longer finite
├── CheckpointError  no usable checkpoint, or one of another experiment
├── StorageError     the disk is full, or the folder cannot be written
├── RunError         no such run, or it is not running
├── DataError        a dataset is missing, damaged, or made for something else
├── CodecError       bytes that are not a message
├── Fenced           another learner owns this run
├── WorkerFailed     a worker died and could not be replaced
├── NotAllowed       no token, or a wrong one
├── TooLarge         more bytes than are taken at once
└── Unavailable      a service does not answer; it can be tried again
    ├── Busy         it answers too many calls already
    └── TimedOut     it did not answer in time; nobody knows whether it did what was asked
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

TEMPORARY = 75
"""The exit code that `sysexits.h` calls a temporary failure: a worker that ends so is replaced."""


class MillError(Exception):
    """Anything that a person can act upon."""

    exit_code = 2


class ConfigError(MillError):
    """A key, type or range of the experiment is wrong."""


class WrongArgument(ConfigError, TypeError):
    """An argument of a call is not what its signature says."""


class UnknownName(MillError):
    """Nothing is registered under that name."""

    @classmethod
    def of(cls, kind: str, name: str, known: Iterable[str], hint: str = "") -> UnknownName:
        """An error that names the nearest known names."""
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names[:8]
        meant = f"; did you mean {' or '.join(near)}?" if near else ""
        return cls(f"unknown {kind} {name!r}{meant}{' ' + hint if hint else ''}")


class MissingPart(MillError):
    """An optional package is not installed."""

    @classmethod
    def of(cls, what: str, extra: str) -> MissingPart:
        """An error that says which extra to install."""
        clone = f"from a clone: pip install -e '.[{extra}]'"
        return cls(f"{what} is not installed; run: pip install 'millstream[{extra}]' ({clone})")


class EnvError(MillError):
    """The environment broke its promise."""


class EnvLost(EnvError):
    """A process of the environment was killed; it can be tried again."""

    exit_code = TEMPORARY


class AgentError(MillError):
    """The agent broke its promise."""


class Diverged(MillError):
    """The numbers of learning are no longer finite."""


class CheckpointError(MillError):
    """No usable checkpoint, or one of another experiment."""


class StorageError(MillError):
    """The disk is full, or the folder cannot be written."""


class RunError(MillError):
    """No such run, or it is not running."""


class DataError(MillError):
    """A dataset is missing, damaged, or made for something else."""


class CodecError(MillError):
    """Bytes that are not a message."""

    def __init__(self, text: str = "", reason: str = "damaged") -> None:
        super().__init__(text)
        self.reason = reason
        """In one word, for counting."""


class Fenced(MillError):
    """Another learner owns this run."""


class WorkerFailed(MillError):
    """A worker died and could not be replaced."""


class NotAllowed(MillError):
    """No token, or a wrong one."""


class TooLarge(MillError):
    """More bytes than are taken at once."""


class Unavailable(MillError):
    """A service does not answer; it can be tried again."""

    exit_code = TEMPORARY


class Busy(Unavailable):
    """It answers too many calls already."""


class TimedOut(Unavailable):
    """It did not answer in time; nobody knows whether it did what was asked."""


def named(name: str, text: str) -> MillError | None:
    """The error of this name, as another process told it; None when there is no such error."""
    kind = globals().get(name)
    return kind(text) if isinstance(kind, type) and issubclass(kind, MillError) else None
