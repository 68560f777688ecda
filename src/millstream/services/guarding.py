"""What stands between a caller and every service: the token, and what becomes of errors."""

from __future__ import annotations

import hmac
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import grpc

from millstream.core.codes import NAME_KEY, code_of, kind_of
from millstream.core.errors import ConfigError, MillError, NotAllowed

HEALTH = "/grpc.health.v1.Health/"
OPEN = (f"{HEALTH}Check",)
"""Methods that need no token."""
LONGEST_CALL = 3600.0
"""Seconds after which the deadline of a call that sends a stream is as good as none."""
_TEXT = 2000


class Guard(grpc.ServerInterceptor):
    """Lets in who knows the token. It is asked before the request is read, let alone decoded."""

    def __init__(self, token: str | None) -> None:
        self._expected = None if token is None else f"Bearer {token}".encode()

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """The handler, or one that says no."""
        if self._expected is None or details.method in OPEN:
            return continuation(details)
        given = dict(details.invocation_metadata).get("authorization", "")
        raw = given if isinstance(given, bytes) else given.encode()
        if hmac.compare_digest(raw, self._expected):
            return continuation(details)
        words = "a wrong token" if raw else "no token"
        return grpc.stream_stream_rpc_method_handler(_denying(f"{words} was given; ask whoever started the service"))


class Translating(grpc.ServerInterceptor):
    """Turns what a handler raises into an answer."""

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """The handler, with its errors translated."""
        handler = continuation(details)
        if handler is None or details.method.startswith(HEALTH):  # health has ways of its own
            return handler
        return _translated(handler)


def _translated(handler: Any) -> Any:
    streams = handler.request_streaming, handler.response_streaming
    make, behaviour = {
        (False, False): (grpc.unary_unary_rpc_method_handler, handler.unary_unary),
        (False, True): (grpc.unary_stream_rpc_method_handler, handler.unary_stream),
        (True, False): (grpc.stream_unary_rpc_method_handler, handler.stream_unary),
        (True, True): (grpc.stream_stream_rpc_method_handler, handler.stream_stream),
    }[streams]

    def one(request: Any, context: Any) -> Any:
        try:
            _check_deadline(handler.request_streaming, context)
            return behaviour(request, context)
        except Exception as error:
            abort(context, error)

    def many(request: Any, context: Any) -> Iterator[Any]:
        try:
            _check_deadline(handler.request_streaming, context)
            yield from behaviour(request, context)
        except Exception as error:
            abort(context, error)

    return make(many if handler.response_streaming else one, handler.request_deserializer, handler.response_serializer)


def abort(context: Any, error: Exception) -> NoReturn:
    """End a call with this error: ours by name, any other as a fault that is told here in full."""
    code, words = code_of(error).grpc, str(error)[:_TEXT]
    if not context.is_active():
        code, words = "CANCELLED", "the caller has gone"
    elif isinstance(error, MillError):
        context.set_trailing_metadata(((NAME_KEY, kind_of(error).__name__),))
    else:
        traceback.print_exception(error, file=sys.stderr)
        words = f"a fault inside the service ({type(error).__name__}); what it printed says more"
    context.abort(grpc.StatusCode[code], words)  # it raises
    raise error


def _check_deadline(streaming: bool, context: Any) -> None:
    """Who sends a stream holds memory and a thread here for as long as it likes, unless it said how long."""
    if streaming and not context.time_remaining() <= LONGEST_CALL:
        raise ConfigError(f"a call that sends a stream needs a deadline of at most {LONGEST_CALL:.0f} seconds")


def _denying(words: str) -> Callable[[Any, Any], Iterator[Any]]:
    def deny(_: Any, context: Any) -> Iterator[Any]:
        abort(context, NotAllowed(words))
        yield  # a stream, so that not a byte of the request is waited for

    return deny
