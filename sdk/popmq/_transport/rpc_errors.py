"""Turns failed calls into exceptions of popmq.errors: by the broker's details, else by the status."""

import re
from collections.abc import Callable
from typing import Any

from popmq import errors
from popmq._transport.call import error_of
from popmq_http2 import Code
from popmq_http2.client.call import CallFailed
from popmq_proto.v1 import popmq_pb2 as pb

#: Where gRPC keeps the serialized google.rpc.Status.
DETAILS_KEY = "grpc-status-details-bin"

#: What a status means without an ErrorInfo: it came from gRPC itself, from a proxy, or from another server.
BY_STATUS: dict[Code, type[errors.PopMQError]] = {
    Code.CANCELLED: errors.Unavailable,
    Code.UNKNOWN: errors.Unavailable,
    Code.INVALID_ARGUMENT: errors.InvalidField,
    Code.DEADLINE_EXCEEDED: errors.DeadlineExceeded,
    Code.NOT_FOUND: errors.NotFound,
    Code.ALREADY_EXISTS: errors.AlreadyExists,
    Code.PERMISSION_DENIED: errors.PermissionDenied,
    Code.RESOURCE_EXHAUSTED: errors.Busy,
    Code.FAILED_PRECONDITION: errors.BadRequest,
    Code.ABORTED: errors.Unavailable,
    Code.OUT_OF_RANGE: errors.InvalidField,
    Code.UNIMPLEMENTED: errors.Unsupported,
    Code.INTERNAL: errors.InternalError,
    Code.UNAVAILABLE: errors.Unavailable,
    Code.DATA_LOSS: errors.InternalError,
    Code.UNAUTHENTICATED: errors.Unauthenticated,
}


#: How both transports name the status of an answer that is plain HTTP.
_HTTP = re.compile(r"(?:HTTP status|header with status:) (\d{3})")
_PASS = "let the proxy pass gRPC to the broker unchanged, or name the broker's own address"
#: What that status means, what to do, and whether a later try may succeed; 300, 400 and 500: of all others like it.
_BY_HTTP: dict[int, tuple[type[errors.PopMQError], str, bool]] = {
    300: (errors.Unavailable, _PASS, False),
    400: (errors.BadRequest, _PASS, False),
    401: (errors.Unauthenticated, _PASS, False),
    403: (errors.PermissionDenied, _PASS, False),
    404: (errors.Unavailable, _PASS, False),
    405: (errors.Unavailable, _PASS, False),
    407: (errors.Unauthenticated, _PASS, False),
    408: (errors.Unavailable, "try again later", True),
    413: (
        errors.BadRequest,
        "send less at a time, or raise the proxy's limit (nginx: client_max_body_size)",
        False,
    ),
    429: (errors.Busy, "try again later, or raise the proxy's limit", True),
    500: (errors.Unavailable, "is `popmq serve` running behind the proxy?", True),
}

#: What RESOURCE_EXHAUSTED says of a message that is too large, on both transports: trying again would not help.
_TOO_LARGE = ("at most", "more than", "larger than max")

_IS_IT_RUNNING = "is `popmq serve` running there?"
#: A TLS port closes connections that begin without TLS, or without a certificate that it asks for.
_CLOSED = (
    f"{_IS_IT_RUNNING} If this is its TLS port, connect with TLS (tls=True, or --tls); if that asks for certificates, "
    "show one of an authority of the broker (client_cert=FILE, client_key=FILE; --client-cert, --client-key)"
)
#: Texts of failed connections, and what to do about them.
_CURES = {
    "Socket closed": _CLOSED,
    "reset by peer": _CLOSED,
    "Broken pipe": _CLOSED,
    "mismatch, certificate is not valid": "use a host name that is in the broker's certificate",
    "CERTIFICATE_VERIFY_FAILED": (
        "trust the broker's certificate by tls_ca=FILE (--tls-ca FILE), or give it one that is trusted"
    ),
    "WRONG_VERSION_NUMBER": "that port is without TLS: name the TLS port, or leave out tls",
    "RECORD_LAYER_FAILURE": "that port is without TLS: name the TLS port, or leave out tls",
    "record layer failure": "that port is without TLS: name the TLS port, or leave out tls",
    "not SETTINGS": "that port serves something else: name the broker's",
    "(ALPN)": "that port serves something else: name the broker's TLS port",
    "Too many open files": "close what this process has open, or raise its limit (ulimit -n)",
    "start new thread": "end threads of this process, or raise its limit (ulimit -u)",
    "Hostname Verification": "use a host name that is in the broker's certificate",
}
#: Of these, what a server says that is not a broker: a later try would find the same server.
_OTHER_SERVERS = ("not SETTINGS", "(ALPN)")


def read_rpc_error(error: CallFailed, endpoint: str, method: str) -> errors.PopMQError:
    """The exception for a failed call."""
    info = _error_info(error.trailers)
    if info is not None:
        return error_of(info)
    kind = BY_STATUS.get(error.code, errors.InternalError)
    text = error.message or error.code.name
    if (http := _HTTP.search(text)) is not None:
        return _of_proxy(int(http[1]), endpoint, method)
    return _BUILD.get(kind, _plain)(kind, text, endpoint, method)


def _error_info(metadata: Any) -> pb.ErrorInfo | None:
    for key, value in metadata:
        if key == DETAILS_KEY:
            from google.rpc import status_pb2  # only for errors

            for detail in status_pb2.Status.FromString(value).details:
                info = pb.ErrorInfo()
                if detail.Unpack(info):
                    return info
    return None


def _of_proxy(http: int, endpoint: str, method: str) -> errors.PopMQError:
    """The error for an answer that is not gRPC's: a broker never gives one."""
    kind, action, again = _BY_HTTP.get(http) or _BY_HTTP[500 if http >= 500 else 300 if http < 400 else 400]
    text = f"{method} at {endpoint}: a proxy or another server answers with HTTP status {http}"
    return kind(text, code="UNAVAILABLE" if kind is errors.Unavailable else "", action=action, retryable=again)


def _plain(kind: type[errors.PopMQError], text: str, endpoint: str, method: str) -> errors.PopMQError:
    return kind(f"{method} at {endpoint}: {text}")


def _unavailable(kind: type[errors.PopMQError], text: str, endpoint: str, method: str) -> errors.PopMQError:
    return kind(
        f"no broker answers at {endpoint}: {text}",
        code="UNAVAILABLE",
        action=next((cure for part, cure in _CURES.items() if part in text), _IS_IT_RUNNING),
        retryable=not any(part in text for part in _OTHER_SERVERS),
    )


def _late(kind: type[errors.PopMQError], text: str, endpoint: str, method: str) -> errors.PopMQError:
    return kind(f"{endpoint} gave no answer to {method} in time; whether it was done is not known", retryable=True)


def _busy(kind: type[errors.PopMQError], text: str, endpoint: str, method: str) -> errors.PopMQError:
    if any(part in text for part in _TOO_LARGE):
        return _plain(errors.BadRequest, text, endpoint, method)
    return kind(f"{method} at {endpoint}: {text}", code="BUSY", action="try again later", retryable=True)


_BUILD: dict[type[errors.PopMQError], Callable[..., errors.PopMQError]] = {
    errors.Busy: _busy,
    errors.Unavailable: _unavailable,
    errors.DeadlineExceeded: _late,
}
