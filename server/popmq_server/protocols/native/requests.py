"""Requests of popmq.v1: parses them, and validates the parts that several calls have.

Values out of range are refused, never clamped: a caller asking for 5,000 messages would not notice getting 4,096.
Refusals name the field by its path in the request (`messages[3].body`, `changes[0].release.delay_ms`).
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract.commands import GivenResult, MessageResult, Position
from popmq_server.errors import Refused, invalid, not_one_of
from popmq_server.protocols import validation
from popmq_server.protocols.access import request_size
from popmq_server.values.message import (
    CONTENT_TYPE_BYTES_MAX,
    MESSAGE_ID_BYTES_MAX,
    RESULT_BYTES_MAX,
    TIME_MS_MAX,
    check_range,
    check_text,
)

INT64_MAX = (1 << 63) - 1
#: Limits of requests.
LITE_TOPICS_MAX = 2300
POP_BYTES_MAX = 16 << 20
POP_BYTES = 3 << 20
POP_MESSAGES = 32
WAIT_MS_MAX = 60_000
ATTEMPT_ID_BYTES_MAX = 64
MAX_ATTEMPTS_MAX = 1000
OWNER_BYTES_MAX = 64
PRODUCER_ID_BYTES_MAX = 64
#: Limits of the name of a sink, and of the id of a stage.
SINK_BYTES_MAX = ORIGIN_BYTES_MAX = 128


M = TypeVar("M", bound=Message)


def read(kind: type[M], raw: bytes, name: str = "") -> M:
    """Parses a request. Raises Refused for malformed bytes: they are the caller's mistake, not a crash of the call.

    Also for more bytes or elements than any valid request has.
    """
    if len(raw) > request_size.FREE_BYTES:
        request_size.check(kind, raw, name)
    try:
        return kind.FromString(raw)
    except DecodeError:
        raise invalid(
            f"the request's bytes are not a {name or kind.DESCRIPTOR.full_name}",
            action="encode it with stubs made from the contract; texts are UTF-8",
        ) from None


class Paths:
    """A context: the engine's refusals use the engine's field names, `places` maps them to the fields of a request."""

    __slots__ = ("_places",)

    def __init__(self, **places: str) -> None:
        self._places = places

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Refused):
            self.name(error)

    def name(self, refused: Refused) -> None:
        """Gives a refusal the field of the request."""
        refused.field = self._places.get(refused.field, refused.field)


def wanted(
    request: pb.PopRequest | pb.PullRequest | pb.PeekRequest | pb.SetFilterRequest | pb.WaitAvailableRequest,
) -> tuple[str, str] | None:
    """(kind, text) of a valid filter; None when it is unset.

    Compiles the filter, so that an invalid one is refused here and cannot fail on a message later.
    """
    kind = request.filter.WhichOneof("expression") if request.HasField("filter") else None
    if kind is None:
        return None
    text = getattr(request.filter, kind)
    validation.check_filter(kind, text, request.topic, request.group)
    return kind, text


def position(upto: pb.Position, field: str) -> Position:
    for queue, offset in upto.queues.items():
        check_range(offset, f"{field}.queues[{queue}]", 0, INT64_MAX)
    return Position(dict(upto.queues), upto.retry)


def generation(value: int, field: str = "generation") -> int:
    """A generation as AttachOwner returned it. Zero is refused: it would match any generation."""
    return check_range(value, field, 1, INT64_MAX)


def invisible_ms(value: int, field: str, default: int | None = 0) -> int:
    """A lease in ms within 1 s – 12 h; 0 becomes `default`, unless `default` is None."""
    return check_range(value, field, validation.INVISIBLE_MS_MIN, validation.INVISIBLE_MS_MAX, default)


def given_results(rows: Iterable[pb.DeliveryResult], handles: int) -> tuple[GivenResult, ...]:
    """The results that a request gives for some of its handles; `handles`: their number."""
    given = tuple([GivenResult(row.handle, row.body, row.content_type) for row in rows])
    check_range(len(given), "results", 0, handles)
    _check_bytes(given)
    seen = set[int]()
    for index, each in enumerate(given):
        check_range(each.handle, f"results[{index}].handle", 0, handles - 1)
        if each.handle in seen:
            raise invalid(
                "this delivery has a result already", field=f"results[{index}].handle", action="give it one result"
            )
        seen.add(each.handle)
        _check_result(each, index)
    return given


def message_results(rows: Iterable[pb.MessageResult]) -> tuple[MessageResult, ...]:
    """The results that a request has by their message ids."""
    given = tuple([MessageResult(row.message_id, row.body, row.content_type) for row in rows])
    check_range(len(given), "results", 1, validation.ENTRIES_MAX)
    _check_bytes(given)
    for index, each in enumerate(given):
        check_text(each.message_id, f"results[{index}].message_id", MESSAGE_ID_BYTES_MAX, required=True)
        _check_result(each, index)
    return given


def _check_bytes(given: Sequence[GivenResult | MessageResult]) -> None:
    if (size := sum([len(each.body) for each in given])) > validation.SEND_BYTES_MAX:
        raise invalid(
            f"the results of one request have {size} bytes, at most {validation.SEND_BYTES_MAX} are allowed",
            field="results",
            action="give fewer in a request",
        )


def _check_result(given: GivenResult | MessageResult, index: int) -> None:
    if len(given.body) > RESULT_BYTES_MAX:
        raise invalid(
            f"the result has {len(given.body)} bytes, at most {RESULT_BYTES_MAX} are allowed",
            field=f"results[{index}].body",
            action="store it elsewhere, and give its address as the result",
        )
    if given.content_type:
        _check_content_type(given.content_type, f"results[{index}].content_type")


def _check_content_type(text: str, field: str) -> None:
    check_text(text, field, CONTENT_TYPE_BYTES_MAX)
    if not ("/" in text and text.isascii() and text.isprintable()):
        raise invalid(f"{text!r} is no content type", field=field, action="name one such as application/json")


def start_position(start: pb.StartPosition, field: str) -> tuple[str, int]:
    """(name of the StartFrom, timestamp ms); only TIMESTAMP has a timestamp."""
    if start.__getattribute__("from") not in pb.StartFrom.values():
        raise not_one_of(f"{field}.from", start.__getattribute__("from"), pb.StartFrom.keys())
    kind = pb.StartFrom.Name(start.__getattribute__("from"))
    if start.timestamp_ms < 0 or (kind == "TIMESTAMP") != bool(start.timestamp_ms):
        raise invalid(
            "timestamp_ms must be positive with TIMESTAMP, and unset otherwise",
            field=f"{field}.timestamp_ms",
            action="set from to TIMESTAMP, or unset timestamp_ms",
        )
    return kind, check_range(start.timestamp_ms, f"{field}.timestamp_ms", 0, TIME_MS_MAX)
