"""What each error of the tree is called by those who come over a network: one table for every door and service."""

from __future__ import annotations

from typing import NamedTuple

from millstream.core import errors
from millstream.core.errors import MillError


class Code(NamedTuple):
    """The name of a gRPC status, and an HTTP status."""

    grpc: str
    http: int


NAME_KEY = "mill-error"
"""Under which metadata an error's name travels beside its code, so that the other side raises the very same."""
FAULT = Code("INTERNAL", 500)
"""Whatever is no error of ours: a fault of the program."""
CODES: dict[type[MillError], Code] = {
    MillError: FAULT,
    errors.ConfigError: Code("INVALID_ARGUMENT", 400),
    errors.WrongArgument: Code("INVALID_ARGUMENT", 400),
    errors.UnknownName: Code("NOT_FOUND", 404),
    errors.MissingPart: Code("UNIMPLEMENTED", 501),
    errors.EnvError: Code("INTERNAL", 500),
    errors.EnvLost: Code("UNAVAILABLE", 503),
    errors.AgentError: Code("INTERNAL", 500),
    errors.Diverged: Code("FAILED_PRECONDITION", 409),
    errors.CheckpointError: Code("FAILED_PRECONDITION", 409),
    errors.DataError: Code("INVALID_ARGUMENT", 400),
    errors.StorageError: Code("INTERNAL", 507),
    errors.RunError: Code("FAILED_PRECONDITION", 409),
    errors.CodecError: Code("INVALID_ARGUMENT", 400),
    errors.Fenced: Code("ABORTED", 409),
    errors.WorkerFailed: Code("INTERNAL", 500),
    errors.NotAllowed: Code("UNAUTHENTICATED", 401),
    errors.TooLarge: Code("RESOURCE_EXHAUSTED", 413),
    errors.Unavailable: Code("UNAVAILABLE", 503),
    errors.Busy: Code("RESOURCE_EXHAUSTED", 429),
    errors.TimedOut: Code("DEADLINE_EXCEEDED", 504),
}


def kind_of(error: MillError) -> type[MillError]:
    """The nearest kind that the table knows, and so everyone who reads it."""
    return next(kind for kind in type(error).__mro__ if kind in CODES)


def code_of(error: BaseException) -> Code:
    """By the nearest kind that the table knows."""
    return CODES[kind_of(error)] if isinstance(error, MillError) else FAULT
