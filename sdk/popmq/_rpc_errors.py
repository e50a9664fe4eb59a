"""Turns gRPC errors into exceptions of popmq.errors: by the broker's details, else by the status."""

from collections.abc import Callable
from typing import Any

import grpc
from google.rpc import status_pb2

from popmq import errors
from popmq._calls import error_of
from popmq_proto.v1 import popmq_pb2 as pb

#: Where gRPC keeps the serialized google.rpc.Status.
DETAILS_KEY = "grpc-status-details-bin"

#: What a status means without an ErrorInfo: it came from gRPC itself, from a proxy, or from another server.
BY_STATUS: dict[grpc.StatusCode, type[errors.PopMQError]] = {
    grpc.StatusCode.CANCELLED: errors.Unavailable,
    grpc.StatusCode.UNKNOWN: errors.InternalError,
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidField,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceeded,
    grpc.StatusCode.NOT_FOUND: errors.NotFound,
    grpc.StatusCode.ALREADY_EXISTS: errors.AlreadyExists,
    grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDenied,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.Rejected,
    grpc.StatusCode.FAILED_PRECONDITION: errors.Rejected,
    grpc.StatusCode.ABORTED: errors.Unavailable,
    grpc.StatusCode.OUT_OF_RANGE: errors.InvalidField,
    grpc.StatusCode.UNIMPLEMENTED: errors.Unsupported,
    grpc.StatusCode.INTERNAL: errors.InternalError,
    grpc.StatusCode.UNAVAILABLE: errors.Unavailable,
    grpc.StatusCode.DATA_LOSS: errors.InternalError,
    grpc.StatusCode.UNAUTHENTICATED: errors.Unauthenticated,
}


_IS_IT_RUNNING = "is `popmq serve` running there?"
#: gRPC's texts for failed connections, and what to do about them. A TLS port closes connections that begin without TLS.
_CURES = {
    "Socket closed": f"{_IS_IT_RUNNING} If this is its TLS port, connect with TLS (tls=True, or --tls)",
    "CERTIFICATE_VERIFY_FAILED": "trust the broker's certificate by tls_ca=FILE, or give it one that is trusted",
    "WRONG_VERSION_NUMBER": "that port is without TLS: name the TLS port, or leave out tls",
    "Hostname Verification": "use a host name that is in the broker's certificate",
}


def read_rpc_error(error: Any, endpoint: str, method: str) -> errors.PopMQError:
    """The exception for a failed call."""
    info = _error_info(error.trailing_metadata() or ())
    if info is not None:
        return error_of(info)
    kind = BY_STATUS.get(error.code(), errors.InternalError)
    text = error.details() or error.code().name
    if kind is errors.InternalError and text.startswith("Stream removed"):
        kind = errors.Unavailable  # how gRPC reports a connection that broke during an answer
    return _BUILD.get(kind, _plain)(kind, text, endpoint, method)


def _error_info(metadata: Any) -> pb.ErrorInfo | None:
    for key, value in metadata:
        if key == DETAILS_KEY:
            for detail in status_pb2.Status.FromString(value).details:
                info = pb.ErrorInfo()
                if detail.Unpack(info):
                    return info
    return None


def _plain(kind: type[errors.PopMQError], text: str, endpoint: str, method: str) -> errors.PopMQError:
    return kind(f"{method} at {endpoint}: {text}")


def _unavailable(kind: type[errors.PopMQError], text: str, endpoint: str, method: str) -> errors.PopMQError:
    return kind(
        f"no broker answers at {endpoint}: {text}",
        code="UNAVAILABLE",
        action=next((cure for part, cure in _CURES.items() if part in text), _IS_IT_RUNNING),
        retryable=True,
    )


def _late(kind: type[errors.PopMQError], text: str, endpoint: str, method: str) -> errors.PopMQError:
    return kind(f"{endpoint} gave no answer to {method} in time; whether it was done is not known", retryable=True)


_BUILD: dict[type[errors.PopMQError], Callable[..., errors.PopMQError]] = {
    errors.Unavailable: _unavailable,
    errors.DeadlineExceeded: _late,
}
