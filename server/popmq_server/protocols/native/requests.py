"""Requests of popmq.v1 → commands: validates every limit that needs no state, before anything waits.

Values out of range are refused, never clamped: a caller asking for 5,000 messages would not notice getting 4,096. An
invalid request raises; an invalid entry is replaced by its refusal in the command, and the other entries are still
processed. This module also builds the field paths (`messages[3].body`, `changes[0].release.delay_ms`).
"""

from collections.abc import Sequence
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from popmq_proto.store.store_pb2 import SendView, StageView
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract.commands import (
    Ack,
    AttachOwner,
    Change,
    ChangeInvisibleTime,
    Pop,
    PopToken,
    Position,
    Send,
    Stage,
    StageName,
)
from popmq_server.errors import Refused, invalid, not_one_of
from popmq_server.protocols import validation
from popmq_server.protocols.access import access_keys, request_size
from popmq_server.protocols.entries import validated
from popmq_server.protocols.native import columns
from popmq_server.values.limits import QUEUES_MAX
from popmq_server.values.message import (
    REASON_BYTES_MAX,
    TIME_MS_MAX,
    check_lite_topic,
    check_messages_total,
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
            error.field = self._places.get(error.field, error.field)


def send(whole: bytes) -> Send:
    """Validates each message on its own: an invalid one becomes its entry's refusal.

    The limits of the whole request come first, so that a request over them is refused before its messages are parsed.
    """
    view = read(SendView, whole, pb.SendRequest.DESCRIPTOR.full_name)
    if len(view.messages) > validation.ENTRIES_MAX:  # before they are copied
        check_range(len(view.messages), "messages", 1, validation.ENTRIES_MAX)
    raws = list(view.messages)  # each access to the field copies a message
    total = sum(map(len, raws))
    check_messages_total(len(raws), total, validation.ENTRIES_MAX, validation.SEND_BYTES_MAX)
    check_text(view.producer_id, "producer_id", PRODUCER_ID_BYTES_MAX)
    if bool(view.producer_id) != bool(view.request_number):
        raise invalid(
            "producer_id and request_number belong together", field="request_number", action="set both, or neither"
        )
    producer = _producer(view.producer_id)
    entries = validated(pb.SendRequest, whole, raws, producer, view.request_number)
    return Send(validation.sent_name(view.topic), entries, producer, view.request_number, total)


def _producer(name: str) -> str:
    """A producer id as the engine gets it. Ids can be guessed, so each access key has its own producers."""
    key = access_keys.CALLER.get() if name else None
    return f"{key.name}/{name}" if isinstance(key, access_keys.Key) else name


def stage(whole: bytes) -> Stage:
    """Validates as `send` does. An id that is missing follows from the stage and the piece, as in a repeat of it."""
    view = read(StageView, whole, pb.StageRequest.DESCRIPTOR.full_name)
    if len(view.messages) > validation.ENTRIES_MAX:  # before they are copied
        check_range(len(view.messages), "messages", 1, validation.ENTRIES_MAX)
    raws = list(view.messages)  # each access to the field copies a message
    total = sum(map(len, raws))
    check_messages_total(len(raws), total, validation.ENTRIES_MAX, validation.SEND_BYTES_MAX)
    sink = check_text(view.sink, "sink", SINK_BYTES_MAX, required=True)
    stage_id = check_text(view.stage_id, "stage_id", SINK_BYTES_MAX, required=True)
    batch = check_range(view.batch, "batch", 0, INT64_MAX)
    entries = validated(pb.StageRequest, whole, raws, stage_id, view.piece)
    return Stage(sink, batch, stage_id, view.piece, validation.sent_name(view.topic), entries, total)


def stage_names(names: Sequence[pb.StageName], least: int) -> tuple[StageName, ...]:
    """The stages of a CommitBatch or DropStages."""
    check_range(len(names), "stages", least, validation.ENTRIES_MAX)
    found = []
    for index, name in enumerate(names):
        stage_id = check_text(name.stage_id, f"stages[{index}].stage_id", SINK_BYTES_MAX, required=True)
        found.append(StageName(stage_id, validation.topic_name(name.topic, f"stages[{index}].topic"), name.messages))
    return tuple(found)


class KnownPops:
    """Pops that were read before, by their bytes: a consumer repeats the same request, unless it names each try."""

    MAX, BYTES_MAX = 1024, 256

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[pb.PopRequest, Pop]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def read(self, raw: bytes) -> tuple[pb.PopRequest, Pop]:
        """The request and its command; neither may be changed."""
        if (known := self._known.get(raw)) is not None:
            return known
        request = read(pb.PopRequest, raw)
        command = pop(request)
        if not command.attempt_id and command.token is None and len(raw) <= self.BYTES_MAX:
            if len(self._known) >= self.MAX:
                self._known.clear()
            self._known[raw] = request, command
        return request, command


def pop(request: pb.PopRequest) -> Pop:
    """Zeros become defaults; any other value out of range is refused, never clamped."""
    columns.check_format(request)
    token = _token(request.token) if request.HasField("token") else None
    if token is not None and request.attempt_id:
        raise invalid(
            "token and attempt_id are both set, and a token identifies the attempt already",
            field="attempt_id",
            action="set one of them",
        )
    check_range(request.wait_ms, "wait_ms", 0, WAIT_MS_MAX)
    check_range(len(request.queues), "queues", 0, QUEUES_MAX)
    return Pop(
        validation.topic_name(request.topic),
        validation.group_name(request.group),
        tuple(dict.fromkeys(request.queues)),
        check_range(request.max_messages, "max_messages", 1, validation.ENTRIES_MAX, POP_MESSAGES),
        check_range(request.max_bytes, "max_bytes", 1, POP_BYTES_MAX, POP_BYTES),
        invisible_ms(request.invisible_ms, "invisible_ms"),
        validation.client_id(request.client_id),
        check_text(request.attempt_id, "attempt_id", ATTEMPT_ID_BYTES_MAX),
        token,
        wanted(request),
        lite=_lite_topics(request),
        handles=not (token and request.format == pb.FORMAT_COLUMNS),
    )


def _lite_topics(request: pb.PopRequest) -> tuple[str, ...] | None:
    """Names of lite topics, without duplicates; None when there are none."""
    if not request.lite_topics:
        return None
    if request.HasField("token"):
        raise invalid("token and lite_topics are both set", field="token", action="set one of them")
    check_range(len(request.lite_topics), "lite_topics", 1, LITE_TOPICS_MAX)
    return tuple(
        dict.fromkeys(check_lite_topic(name, f"lite_topics[{n}]") for n, name in enumerate(request.lite_topics))
    )


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


def _token(token: pb.Token) -> PopToken:
    """Validates a token; generation and epoch begin at 1, so that an unset field is noticed."""
    check_range(token.epoch, "token.epoch", 1, INT64_MAX)
    generation(token.generation, "token.generation")
    upto = position(token.upto, "token.upto") if token.HasField("upto") else None
    owner = check_text(token.owner, "token.owner", OWNER_BYTES_MAX, required=True)
    place = token.epoch, token.part, token.chunk
    return PopToken(owner, token.generation, *place, token.share, upto, token.topic_id)


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


def ack(request: pb.AckRequest) -> Ack:
    """The engine reads the handles."""
    check_range(len(request.handles), "handles", 1, validation.ENTRIES_MAX)
    return Ack(validation.group_name(request.group), tuple(request.handles))


def change_invisible_time(request: pb.ChangeInvisibleTimeRequest) -> ChangeInvisibleTime:
    """An invalid change becomes its entry's refusal."""
    check_range(len(request.changes), "changes", 1, validation.ENTRIES_MAX)
    changes: list[Change | Refused] = []
    for index, entry in enumerate(request.changes):
        try:
            changes.append(_change(entry, f"changes[{index}]"))
        except Refused as refused:
            changes.append(refused)
    return ChangeInvisibleTime(validation.group_name(request.group), tuple(changes))


def _change(entry: pb.InvisibleTimeChange, field: str) -> Change:
    """One entry: exactly one of extend, release, reject. `delay_ms` unset means the group's backoff, 0 means now."""
    handle = entry.handle
    kind = entry.WhichOneof("change")
    if kind == "extend":
        return Change(handle, kind, invisible_ms(entry.extend.invisible_ms, f"{field}.extend.invisible_ms", None))
    if kind == "reject":
        return Change(
            handle, kind, 0, False, check_text(entry.reject.reason, f"{field}.reject.reason", REASON_BYTES_MAX)
        )
    if kind != "release":
        raise invalid("the change is unset", field=field, action="set one of extend, release, reject")
    delay_ms = None
    if entry.release.HasField("delay_ms"):
        delay_ms = check_range(entry.release.delay_ms, f"{field}.release.delay_ms", 0, validation.INVISIBLE_MS_MAX)
    reason = check_text(entry.release.reason, f"{field}.release.reason", REASON_BYTES_MAX)
    return Change(handle, kind, delay_ms, entry.release.uncounted, reason)


def attach_owner(request: pb.AttachOwnerRequest) -> AttachOwner:
    """`start` matters only for a group without a position in the topic."""
    start = start_position(request.start, "start") if request.HasField("start") else None
    return AttachOwner(
        validation.group_name(request.group),
        check_text(request.owner, "owner", OWNER_BYTES_MAX, required=True),
        invisible_ms(request.lease_ms, "lease_ms", None),
        validation.topic_name(request.topic) if request.topic else "",
        start,
        request.create_group,
    )


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
