"""popmq.v1: looking up and inspecting single messages, redriving dead letters. docs/dead-letters.md, docs/why.md."""

from collections.abc import Iterable

from google.protobuf.message import Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.api.native import requests, responses
from popmq_server.api.native.native import Service
from popmq_server.api.native.requests import ENTRIES_MAX, INT64_MAX, POP_BYTES, POP_MESSAGES, read
from popmq_server.api.native.status import error_info
from popmq_server.commands import Failure, LookUp, Peek, Redrive, Why
from popmq_server.commands.inspection import MessageLife
from popmq_server.errors import invalid
from popmq_server.model.message import KEY_BYTES_MAX, MESSAGE_ID_BYTES_MAX, check_range, check_text


class InspectionService(Service):
    """`native` counts requests and messages."""

    async def Peek(self, raw: bytes) -> bytes:
        """The messages that the next Pop would deliver, joined from stored bytes."""
        request = read(pb.PeekRequest, raw)
        count = check_range(request.max_messages, "max_messages", 1, ENTRIES_MAX, POP_MESSAGES)
        topic, group = requests.topic_name(request.topic), requests.group_name(request.group)
        rows = await self._engine.peek(Peek(topic, group, count, POP_BYTES, requests.wanted(request)))
        self._native.served("Peek", group, topic)
        return b"".join(await responses.delivered(b"\x0a", rows))

    async def LookUp(self, raw: bytes) -> bytes:
        """Messages by id or key, joined from stored bytes."""
        found = await self._engine.look_up(_look_up(read(pb.LookUpRequest, raw)))
        more = pb.LookUpResponse(more=found.more).SerializeToString()
        return b"".join([*await responses.delivered(b"\x0a", found.rows), more])

    async def Why(self, raw: bytes) -> Message:
        """The histories of all messages with an id."""
        request = read(pb.WhyRequest, raw)
        message_id = check_text(request.message_id, "message_id", MESSAGE_ID_BYTES_MAX, required=True)
        topic = requests.topic_name(request.topic) if request.topic else ""
        group = requests.group_name(request.group) if request.group else ""
        lives = await self._engine.why(Why(message_id, topic, group))
        return pb.WhyResponse(lives=[_life(life) for life in lives])

    async def RedriveDeadLetters(self, raw: bytes) -> Message:
        """Redrives some or all dead letters."""
        request = read(pb.RedriveDeadLettersRequest, raw)
        group = requests.group_name(request.group) if request.group else ""
        topic = requests.topic_name(request.topic) if request.topic else ""
        redriven = await self._engine.redrive(Redrive(group, topic, *_named(request)))
        self._native.served("RedriveDeadLetters", group, topic)
        for origin, messages in redriven.topics.items():
            self._native.moved("RedriveDeadLetters", group, origin, messages)
        for failure in redriven.failures:
            self._metrics.refusals.labels(failure.why.code).inc()
        count = sum(redriven.topics.values())
        return pb.RedriveDeadLettersResponse(redriven=count, failures=_failures(redriven.failures))


def _look_up(request: pb.LookUpRequest) -> LookUp:
    """Validates the request: exactly one of id and key, and `until_ms` not before `from_ms`."""
    if bool(request.message_id) == bool(request.key):
        raise invalid("exactly one of message_id and key must be set", field="message_id", action="set one of them")
    from_ms = check_range(request.from_ms, "from_ms", 0, INT64_MAX)
    return LookUp(
        requests.topic_name(request.topic),
        check_text(request.message_id, "message_id", MESSAGE_ID_BYTES_MAX),
        check_text(request.key, "key", KEY_BYTES_MAX),
        check_range(request.max_messages, "max_messages", 1, ENTRIES_MAX, POP_MESSAGES),
        POP_BYTES,
        from_ms,
        check_range(request.until_ms, "until_ms", from_ms, INT64_MAX, 0),
    )


def _named(request: pb.RedriveDeadLettersRequest) -> tuple[tuple[int, ...], frozenset[str]]:
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
