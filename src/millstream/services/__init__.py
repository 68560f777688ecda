"""Thin network shells around a port: one file a service, and the one way in which all of them are served."""

from millstream.core.errors import MissingPart

try:
    import grpc  # noqa: F401
    import grpc_health  # noqa: F401
except ImportError as error:
    raise MissingPart.of("gRPC", "grpc") from error
