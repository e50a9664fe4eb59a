"""Errors of apache.rocketmq.v2: a Status in the answer, while the call itself ends with gRPC's OK.

    Declined    refused by this protocol's code: a value that the protocol does not allow
    Refused     refused by the engine: `code_of` maps it to a code

Every code here can be provoked: docs/rocketmq.md lists each with its causes.
"""

from collections.abc import Iterable

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_server.errors import BrokerError, Refused
from popmq_server.values.message import varint

#: popmq.v1.Code → apache.rocketmq.v2.Code. Retryable refusals are TOO_MANY_REQUESTS, at which clients back off.
_CODES = {
    "TOPIC_NOT_FOUND": pb.TOPIC_NOT_FOUND,
    "GROUP_NOT_FOUND": pb.CONSUMER_GROUP_NOT_FOUND,
    "INVALID_HANDLE": pb.INVALID_RECEIPT_HANDLE,
    "HANDLE_LAPSED": pb.INVALID_RECEIPT_HANDLE,
    "FILTER_INVALID": pb.ILLEGAL_FILTER_EXPRESSION,
    "FILTER_CONFLICT": pb.ILLEGAL_FILTER_EXPRESSION,
    "STORAGE_FULL": pb.TOO_MANY_REQUESTS,
    "UNAVAILABLE": pb.TOO_MANY_REQUESTS,
    "BUSY": pb.TOO_MANY_REQUESTS,
    "IN_FLIGHT_LIMIT": pb.TOO_MANY_REQUESTS,
    "POLLING_FULL": pb.TOO_MANY_REQUESTS,
    "RATE_LIMITED": pb.TOO_MANY_REQUESTS,
    "LITE_TOPIC_QUOTA": pb.LITE_TOPIC_QUOTA_EXCEEDED,
    "LITE_SUBSCRIPTION_QUOTA": pb.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
    "UNAUTHENTICATED": pb.UNAUTHORIZED,
    "PERMISSION_DENIED": pb.UNAUTHORIZED,
    "FORBIDDEN": pb.FORBIDDEN,
    "MESSAGE_NOT_FOUND": pb.MESSAGE_NOT_FOUND,
    "TRANSACTION_NOT_FOUND": pb.INVALID_TRANSACTION_ID,
    "TRANSACTION_ENDED": pb.INVALID_TRANSACTION_ID,
    "WRONG_CONSUME_MODE": pb.PRECONDITION_FAILED,
    "UNSUPPORTED": pb.NOT_IMPLEMENTED,
    "INVALID_FIELD": pb.BAD_REQUEST,
}
#: Codes for INVALID_FIELD, by the field at fault.
_FIELDS = {
    "topic": pb.ILLEGAL_TOPIC,
    "group": pb.ILLEGAL_CONSUMER_GROUP,
    "type": pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    "tag": pb.ILLEGAL_MESSAGE_TAG,
    "keys": pb.ILLEGAL_MESSAGE_KEY,
    "message_group": pb.ILLEGAL_MESSAGE_GROUP,
    "message_id": pb.ILLEGAL_MESSAGE_ID,
    "properties": pb.MESSAGE_PROPERTIES_TOO_LARGE,
    "body": pb.MESSAGE_BODY_TOO_LARGE,
    "lite_topic": pb.ILLEGAL_LITE_TOPIC,
    "lite_topics": pb.ILLEGAL_TOPIC,
    "recall_handle": pb.BAD_REQUEST,
    "offset_option": pb.ILLEGAL_OFFSET,
    "transaction_id": pb.INVALID_TRANSACTION_ID,
}
#: Replacements for Rust: its client ends its process at a code that it does not know.
_FOR_RUST = {
    pb.ILLEGAL_OFFSET: pb.BAD_REQUEST,
    pb.ILLEGAL_LITE_TOPIC: pb.BAD_REQUEST,
    pb.INVALID_CLIENT_PROPERTIES: pb.BAD_REQUEST,
    pb.OFFSET_NOT_FOUND: pb.NOT_FOUND,
    pb.MESSAGE_BODY_EMPTY: pb.MESSAGE_CORRUPTED,
    pb.LITE_TOPIC_QUOTA_EXCEEDED: pb.TOO_MANY_REQUESTS,
    pb.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: pb.TOO_MANY_REQUESTS,
}

OK = pb.Status(code=pb.OK, message="OK")
#: The length and bytes of OK, for answers that are encoded by hand.
OK_ENCODED = varint(OK.ByteSize()) + OK.SerializeToString()


class Declined(BrokerError):
    """A request that this protocol's code refuses before it reaches the engine."""

    def __init__(self, code: pb.Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def not_one_of(field: str, value: int, allowed: Iterable[str]) -> Declined:
    """BAD_REQUEST for an enum field with a value that is not served; the message lists those that are."""
    return Declined(pb.BAD_REQUEST, f"{field} has no value {value}; use one of {', '.join(allowed)}")


def code_of(refused: Refused) -> pb.Code:
    """The code for a refusal of the engine."""
    if refused.code == "INVALID_FIELD":
        field = refused.field.rpartition("].")[2].partition("[")[0]
        return _FIELDS.get(field, pb.BAD_REQUEST)
    return _CODES.get(refused.code, pb.INTERNAL_SERVER_ERROR)


def status_of(error: Exception, language: str = "") -> pb.Status:
    """The Status for an exception; for a bug it reveals no details to the caller."""
    if isinstance(error, Declined):
        code, message = error.code, error.message
    elif isinstance(error, Refused):
        code, message = code_of(error), f"{error.message}; {error.action}" if error.action else error.message
    else:
        code, message = pb.INTERNAL_SERVER_ERROR, "the broker failed on this request: report it with the broker's log"
    if code == pb.INVALID_RECEIPT_HANDLE:
        message = (
            f"INVALID_RECEIPT_HANDLE: {message}"  # programs look for the name, which the reference has in its text
        )
    if language == "RUST":
        code = _FOR_RUST.get(code, code)
    return pb.Status(code=code, message=message)
