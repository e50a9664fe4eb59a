"""Answers over HTTP, and Connect's errors: a status of HTTP, and {"code", "message", "details"} as JSON."""

import base64
import json
from typing import NamedTuple

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from popmq_http2 import Aborted, Code
from popmq_proto.v1 import popmq_pb2 as pb

JSON, PROTO = "application/json", "application/proto"
_DETAILS = "grpc-status-details-bin"
#: The statuses of the protocol, https://connectrpc.com/docs/protocol#error-codes. Connect writes "canceled".
_HTTP = {
    Code.CANCELLED: 499,
    Code.UNKNOWN: 500,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.DATA_LOSS: 500,
    Code.UNAUTHENTICATED: 401,
}


class Answer(NamedTuple):
    """What leaves for a request. `kind`: its content-type, "" without content.

    `closes`: the connection ends after it.
    """

    status: int
    kind: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    closes: bool = False


def error(aborted: Aborted, status: int = 0, *, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """The answer to a call that ended with a status. `status`: of HTTP, if it is not the one of its code."""
    name = "canceled" if aborted.code is Code.CANCELLED else aborted.code.name.lower()
    content: dict[str, object] = {"code": name, "message": aborted.message}
    if details := _details(aborted):
        content["details"] = details
    body = json.dumps(content, ensure_ascii=False).encode()
    return Answer(status or _HTTP[aborted.code], JSON, body, headers)


def _details(aborted: Aborted) -> list[dict[str, object]]:
    """The ErrorInfo of a refusal: its bytes for programs with stubs, and `debug` for people and for `jq`."""
    found: list[dict[str, object]] = []
    for name, value in aborted.metadata:
        if name != _DETAILS or not isinstance(value, bytes):
            continue
        for detail in status_pb2.Status.FromString(value).details:
            kind = detail.type_url.rpartition("/")[2]
            raw = base64.b64encode(detail.value).rstrip(b"=").decode()
            found.append({"type": kind, "value": raw, **_debug(kind, detail.value)})
    return found


def _debug(kind: str, raw: bytes) -> dict[str, object]:
    if kind != pb.ErrorInfo.DESCRIPTOR.full_name:
        return {}
    try:
        return {"debug": json_format.MessageToDict(pb.ErrorInfo.FromString(raw))}
    except DecodeError:
        return {}
