"""popmq.v1: looking up and inspecting single messages, redriving dead letters. docs/dead-letters.md, docs/why.md."""

from collections.abc import Iterable

from google.protobuf.message import Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract.commands import Discard, Failure, LookUp, Peek, Redrive, Search, Why, queries
from popmq_server.contract.commands.inspection import DeadLetterReasons, MessageLife
from popmq_server.errors import invalid, not_one_of
from popmq_server.protocols import validation
from popmq_server.protocols.native import pages, requests, responses
from popmq_server.protocols.native.native import NativeServicer
from popmq_server.protocols.native.requests import INT64_MAX, POP_BYTES, POP_MESSAGES, read
from popmq_server.protocols.refusals import error_info
from popmq_server.protocols.validation import ENTRIES_MAX
from popmq_server.values.message import (
    KEY_BYTES_MAX,
    MESSAGE_ID_BYTES_MAX,
    REASON_BYTES_MAX,
    check_range,
    check_text,
)

#: Limit of a text that is searched for.
SEARCH_BYTES_MAX = 256


class InspectionService(NativeServicer):
    """`native` counts requests and messages."""

    async def Peek(self, raw: bytes) -> bytes:
        """The messages that the next Pop would deliver, joined from stored bytes."""
        request = read(pb.PeekRequest, raw)
        count = check_range(request.max_messages, "max_messages", 1, ENTRIES_MAX, POP_MESSAGES)
        topic, group = validation.topic_name(request.topic), validation.group_name(request.group)
        rows = await self._engine.ask(Peek(topic, group, count, POP_BYTES, requests.wanted(request)))
        self._traffic.served("Peek", group, topic)
        return b"".join(await responses.delivered(b"\x0a", rows))

    async def Browse(self, raw: bytes) -> bytes:
        """Messages without a lease: by position (`%RETRY%group+topic` by entry number), or of all queues."""
        request = read(pb.BrowseRequest, raw)
        name = validation.browsed_name(request.topic)
        count = check_range(request.max_messages, "max_messages", 1, ENTRIES_MAX, POP_MESSAGES)
        if request.order:
            found = await self._engine.ask(_search(request, name, count))
            end = pb.BrowseResponse(looked_at=found.looked_at, next_page_token=pages.token(request, found.at))
            return b"".join([*await responses.delivered(b"\x0a", found.rows), end.SerializeToString()])
        _check_by_offset(request)
        offset = check_range(request.offset, "offset", 0, INT64_MAX)
        page = await self._engine.ask(queries.Browse(name, request.queue, offset, count, POP_BYTES))
        end = pb.BrowseResponse(next_offset=page.next_offset, min_offset=page.min_offset, max_offset=page.max_offset)
        return b"".join([*await responses.delivered(b"\x0a", page.rows), end.SerializeToString()])

    async def LookUp(self, raw: bytes) -> bytes:
        """Messages by id or key, joined from stored bytes."""
        found = await self._engine.ask(_look_up(read(pb.LookUpRequest, raw)))
        more = pb.LookUpResponse(more=found.more).SerializeToString()
        return b"".join([*await responses.delivered(b"\x0a", found.rows), more])

    async def Why(self, raw: bytes) -> Message:
        """The histories of all messages with an id."""
        request = read(pb.WhyRequest, raw)
        message_id = check_text(request.message_id, "message_id", MESSAGE_ID_BYTES_MAX, required=True)
        topic = validation.topic_name(request.topic) if request.topic else ""
        group = validation.group_name(request.group) if request.group else ""
        lives = await self._engine.ask(Why(message_id, topic, group))
        return pb.WhyResponse(lives=[_life(life) for life in lives])

    async def RedriveDeadLetters(self, raw: bytes) -> Message:
        """Redrives some or all dead letters."""
        request = read(pb.RedriveDeadLettersRequest, raw)
        group = validation.group_name(request.group) if request.group else ""
        topic = validation.topic_name(request.topic) if request.topic else ""
        redriven = await self._engine.execute(Redrive(group, topic, *_named(request), *_reason(request)))
        self._traffic.served("RedriveDeadLetters", group, topic)
        for origin, messages in redriven.topics.items():
            self._traffic.moved("RedriveDeadLetters", group, origin, messages)
        for failure in redriven.failures:
            self._metrics.refusals.labels(failure.why.code).inc()
        count = sum(redriven.topics.values())
        return pb.RedriveDeadLettersResponse(redriven=count, failures=_failures(redriven.failures))

    async def DiscardDeadLetters(self, raw: bytes) -> Message:
        """Removes some or all dead letters."""
        request = read(pb.DiscardDeadLettersRequest, raw)
        group = validation.group_name(request.group) if request.group else ""
        topic = validation.topic_name(request.topic) if request.topic else ""
        discarded = await self._engine.execute(Discard(group, topic, *_named(request), *_reason(request)))
        self._traffic.served("DiscardDeadLetters", group, topic)
        for origin, messages in discarded.topics.items():
            self._traffic.moved("DiscardDeadLetters", group, origin, messages)
        for failure in discarded.failures:
            self._metrics.refusals.labels(failure.why.code).inc()
        count = sum(discarded.topics.values())
        return pb.DiscardDeadLettersResponse(discarded=count, failures=_failures(discarded.failures))

    async def ListDeadLetterReasons(self, raw: bytes) -> Message:
        """The reasons of dead letters, those of most of them first."""
        request = read(pb.ListDeadLetterReasonsRequest, raw)
        group = validation.group_name(request.group) if request.group else ""
        topic = validation.topic_name(request.topic) if request.topic else ""
        found = await self._engine.ask(DeadLetterReasons(group, topic, pages.begin(request)))
        rows = sorted(found.reasons, key=lambda row: (-row.messages, row.reason))
        reasons = [pb.DeadLetterReason(**row._asdict()) for row in rows]
        more = pages.token(request, found.at)
        return pb.ListDeadLetterReasonsResponse(reasons=reasons, looked_at=found.looked_at, next_page_token=more)


def _check_by_offset(request: pb.BrowseRequest) -> None:
    """Refuses what belongs to an order over all queues."""
    for field in ("search", "from_ms", "until_ms", "page_token"):
        if getattr(request, field):
            raise invalid(
                f"{field} is set, and the order is BY_OFFSET",
                field=field,
                action="set order to NEWEST_FIRST or OLDEST_FIRST",
            )


def _search(request: pb.BrowseRequest, name: str, count: int) -> Search:
    """Validates a request for an order over all queues: no queue, no offset."""
    if request.order not in pb.BrowseOrder.values():
        raise not_one_of("order", request.order, pb.BrowseOrder.keys())
    for field in ("queue", "offset"):
        if getattr(request, field):
            raise invalid(
                f"{field} is set, and the order is over all queues",
                field=field,
                action=f"leave {field} out, or the order",
            )
    from_ms = check_range(request.from_ms, "from_ms", 0, INT64_MAX)
    until_ms = check_range(request.until_ms, "until_ms", from_ms, INT64_MAX, 0)
    text = check_text(request.search, "search", SEARCH_BYTES_MAX)
    newest = request.order == pb.NEWEST_FIRST
    return Search(name, newest, text, count, POP_BYTES, from_ms, until_ms, pages.begin(request))


def _look_up(request: pb.LookUpRequest) -> LookUp:
    """Validates the request: exactly one of id and key, and `until_ms` not before `from_ms`."""
    if bool(request.message_id) == bool(request.key):
        raise invalid("exactly one of message_id and key must be set", field="message_id", action="set one of them")
    from_ms = check_range(request.from_ms, "from_ms", 0, INT64_MAX)
    return LookUp(
        validation.topic_name(request.topic),
        check_text(request.message_id, "message_id", MESSAGE_ID_BYTES_MAX),
        check_text(request.key, "key", KEY_BYTES_MAX),
        check_range(request.max_messages, "max_messages", 1, ENTRIES_MAX, POP_MESSAGES),
        POP_BYTES,
        from_ms,
        check_range(request.until_ms, "until_ms", from_ms, INT64_MAX, 0),
    )


def _reason(request: pb.RedriveDeadLettersRequest | pb.DiscardDeadLettersRequest) -> tuple[str | None, str]:
    """(the reason, None: any; the exception, "": any)"""
    reason = check_text(request.reason, "reason", REASON_BYTES_MAX) if request.HasField("reason") else None
    return reason, check_text(request.exception, "exception", REASON_BYTES_MAX)


def _named(
    request: pb.RedriveDeadLettersRequest | pb.DiscardDeadLettersRequest,
) -> tuple[tuple[int, ...], frozenset[str]]:
    """Offsets and message ids, each validated."""
    check_range(len(request.offsets), "offsets", 0, ENTRIES_MAX)
    check_range(len(request.message_ids), "message_ids", 0, ENTRIES_MAX)
    for index, offset in enumerate(request.offsets):
        check_range(offset, f"offsets[{index}]", 0, INT64_MAX)
    for index, message_id in enumerate(request.message_ids):
        check_text(message_id, f"message_ids[{index}]", MESSAGE_ID_BYTES_MAX, required=True)
    return tuple(request.offsets), frozenset(request.message_ids)


def _failures(failures: Iterable[Failure]) -> list[pb.RedriveFailure]:
    return [
        pb.RedriveFailure(offset=failure.offset, message_id=failure.message_id, error=error_info(failure.why))
        for failure in failures
    ]


def _life(life: MessageLife) -> pb.MessageLife:
    """Converts a life to the contract's message."""
    made = pb.MessageLife(**life._asdict() | {"groups": []})
    for group in life.groups:
        added = made.groups.add(group=group.group, state=group.state, explanation=group.explanation)
        for event in group.events:
            client, times = event.client, {"time_ms": event.time_ms, "until_ms": event.until_ms}
            added.events.add(what=event.what, client_id=client, attempt=event.attempt, reason=event.reason, **times)
    return made
