"""Refusals on the wire: google.rpc.Status with one popmq.v1.ErrorInfo in `grpc-status-details-bin`.

This is gRPC's richer error model, so the stock helpers of each language read it (grpcio-status, StatusProto,
status.FromError …). ErrorInfo is PopMQ's own rather than google.rpc's, because it carries an action and a retry time.
"""

import grpc
from google.protobuf import any_pb2
from google.rpc import status_pb2

from popmq_http2 import Aborted, Code
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.errors import Refused
from popmq_server.monitoring.metrics import Metrics
from popmq_server.protocols.access.call_context import CallContext

#: popmq.v1.Code → gRPC status, as in the contract's comments; a test compares the two.
STATUS_OF_CODE = {
    "INVALID_FIELD": grpc.StatusCode.INVALID_ARGUMENT,
    "TOPIC_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "GROUP_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "OWNER_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "ALREADY_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "INVALID_HANDLE": grpc.StatusCode.INVALID_ARGUMENT,
    "HANDLE_LAPSED": grpc.StatusCode.FAILED_PRECONDITION,
    "FENCED": grpc.StatusCode.FAILED_PRECONDITION,
    "EPOCH_ALREADY_ACKED": grpc.StatusCode.FAILED_PRECONDITION,
    "FILTER_CONFLICT": grpc.StatusCode.FAILED_PRECONDITION,
    "FILTER_INVALID": grpc.StatusCode.INVALID_ARGUMENT,
    "REQUEST_NUMBER_REUSED": grpc.StatusCode.INVALID_ARGUMENT,
    "STORAGE_FULL": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "BUSY": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "IN_FLIGHT_LIMIT": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "POLLING_FULL": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "UNSUPPORTED": grpc.StatusCode.UNIMPLEMENTED,
    "UNAUTHENTICATED": grpc.StatusCode.UNAUTHENTICATED,
    "PERMISSION_DENIED": grpc.StatusCode.PERMISSION_DENIED,
    "MESSAGE_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "TRANSACTION_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "TRANSACTION_ENDED": grpc.StatusCode.FAILED_PRECONDITION,
    "RATE_LIMITED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "WRONG_CONSUME_MODE": grpc.StatusCode.FAILED_PRECONDITION,
    "LITE_TOPIC_QUOTA": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "LITE_SUBSCRIPTION_QUOTA": grpc.StatusCode.FAILED_PRECONDITION,
    "FORBIDDEN": grpc.StatusCode.FAILED_PRECONDITION,
    "CLIENT_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "SCHEDULE_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "STAGE_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "INTERNAL": grpc.StatusCode.INTERNAL,
}


#: The action of refusals for a limit of the contract. A refusal that depends on what is stored names its own.
_ACTION = "give the field a value that the contract allows, and send the request again"


#: A status travels in trailers, which gRPC limits to 8 KiB in all. They hold the message three times, once with
#: three characters for each byte that is not ASCII.
_TEXT_BYTES_MAX = 500


def _short(text: str) -> str:
    """Truncates a text that quotes what a caller sent."""
    raw = text.encode()
    return text if len(raw) <= _TEXT_BYTES_MAX else raw[:_TEXT_BYTES_MAX].decode(errors="ignore") + "…"


def error_info(refused: Refused) -> pb.ErrorInfo:
    """The wire form of a refusal, for calls and for entries."""
    return pb.ErrorInfo(
        code=pb.Code.Name(pb.Code.Value(refused.code)),
        message=_short(refused.message),
        field=_short(refused.field),
        retryable=refused.retryable,
        retry_after_ms=refused.retry_after_ms,
        action=_short(refused.action) or _ACTION,
    )


async def refuse(context: CallContext, refused: Refused) -> None:
    """Aborts the call with the refusal; does not return."""
    await context.abort(*ending(refused))


def ending(refused: Refused) -> tuple[grpc.StatusCode, str, tuple[tuple[str, bytes], ...]]:
    """How a call ends that is refused: (status, message, trailing metadata)."""
    status = STATUS_OF_CODE[refused.code]
    detail = any_pb2.Any()
    detail.Pack(error_info(refused))
    message = _short(refused.message)
    rich = status_pb2.Status(code=status.value[0], message=message, details=[detail])
    return status, message, (("grpc-status-details-bin", rich.SerializeToString()),)


def aborted(refused: Refused) -> Aborted:
    """The end of a call that is refused, for a transport of popmq_http2."""
    status, message, metadata = ending(refused)
    return Aborted(Code(status.value[0]), message, metadata)


def entry_info(entry: Refused, entries: str, number: int, metrics: Metrics) -> pb.ErrorInfo:
    """The ErrorInfo of a refused entry of a list, which is counted as a refused call is."""
    metrics.refusals.labels(entry.code).inc()
    if not entry.field.startswith(f"{entries}["):
        entry.field = f"{entries}[{number}].{entry.field}"
    return error_info(entry)
