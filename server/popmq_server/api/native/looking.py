"""popmq.v1: looking up and inspecting single messages, redriving dead letters. docs/dead-letters.md, docs/why.md.

    Peek                  peek.py              Why   trace.py, then why.py
    LookUp                look_up.py           RedriveDeadLetters   redrive.py

Each call runs as pieces of some milliseconds, with other commands in between; the loops over the pieces are here.
"""

import shlex
from collections.abc import Iterable

from google.protobuf.message import Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.api.native import requests, responses
from popmq_server.api.native.native import NativeService
from popmq_server.api.native.requests import ENTRIES_MAX, INT64_MAX, POP_BYTES, POP_MESSAGES, read
from popmq_server.api.native.status import error_info
from popmq_server.commands import (
    Failure,
    FindDeadLetters,
    LookUp,
    Peek,
    Redrive,
    Redriven,
    Spotted,
    Trace,
    Walk,
    Why,
    bytes_of,
)
from popmq_server.commands.timeline import MessageLife
from popmq_server.engine.engine import Commands
from popmq_server.engine.metrics import Metrics
from popmq_server.errors import Refused, invalid
from popmq_server.model.message import KEY_BYTES_MAX, MESSAGE_ID_BYTES_MAX, check_range, check_text

#: Places of one id that a Why examines.
SPOTS_MAX = 1000


class InspectionService:
    """`native` counts requests and messages."""

    def __init__(self, engine: Commands, native: NativeService, metrics: Metrics) -> None:
        self._engine = engine
        self._native = native
        self._metrics = metrics

    async def Peek(self, raw: bytes) -> bytes:
        """The messages that the next Pop would deliver, joined from stored bytes."""
        request = read(pb.PeekRequest, raw)
        count = check_range(request.max_messages, "max_messages", 1, ENTRIES_MAX, POP_MESSAGES)
        topic, group = requests.topic_name(request.topic), requests.group_name(request.group)
        command = Peek(topic, group, count, POP_BYTES, requests.wanted(request))
        while (answer := await self._engine.execute(command)).begins is not None:
            command = command._replace(begins=answer.begins)
        self._native.served("Peek", group, topic)
        return b"".join(responses.deliveries(b"\x0a", (row[:5] for row in answer.rows)))

    async def LookUp(self, raw: bytes) -> bytes:
        """Finds messages by id or key; stops before the end only when the answer is full."""
        command = _look_up(read(pb.LookUpRequest, raw))
        rows: list[tuple[bytes, int, int, int, int]] = []
        while True:
            answer = await self._engine.execute(command)
            rows += answer.rows
            room = command.bytes_max - bytes_of(answer.rows)
            full = answer.full or (answer.below > 0 and (len(answer.rows) == command.messages_max or room <= 0))
            if full or not answer.below:
                break
            left = command.messages_max - len(answer.rows)
            command = command._replace(below=answer.below, messages_max=left, bytes_max=room)
        more = pb.LookUpResponse(more=full).SerializeToString()
        return b"".join(responses.deliveries(b"\x0a", rows)) + more

    async def Why(self, raw: bytes) -> Message:
        """Finds every place that may hold the message, then reads all its lives in one consistent view."""
        request = read(pb.WhyRequest, raw)
        message_id = check_text(request.message_id, "message_id", MESSAGE_ID_BYTES_MAX, required=True)
        topic = requests.topic_name(request.topic) if request.topic else ""
        group = requests.group_name(request.group) if request.group else ""
        found: list[Spotted] = []
        command: Trace | None = Trace(message_id, topic, group)
        while command is not None and len(found) < SPOTS_MAX:
            answer = await self._engine.execute(command)
            found += answer.found
            command = command._replace(at=answer.at) if answer.at is not None else None
        question = Why(message_id, tuple(found[:SPOTS_MAX]), topic, group)
        while isinstance(lives := await self._engine.execute(question), Walk):
            question = question._replace(walk=lives)
        return pb.WhyResponse(lives=[_life(life) for life in lives])

    async def RedriveDeadLetters(self, raw: bytes) -> Message:
        """Redrives some or all dead letters. After a crash midway the rest is still there: call again."""
        request = read(pb.RedriveDeadLettersRequest, raw)
        group = requests.group_name(request.group) if request.group else ""
        topic = requests.topic_name(request.topic) if request.topic else ""
        offsets, message_ids = _named(request)
        failures: list[Failure] = []
        counts: dict[str, int] = {}
        if offsets or message_ids:
            found = await self._find(group, message_ids)
            unknown = sorted(message_ids - set(found.values()))
            failures += [Failure(-1, message_id, _no_dead_letter(message_id, group)) for message_id in unknown]
            wanted = tuple(dict.fromkeys((*offsets, *sorted(found))))
            await self._redrive_named(Redrive(group, (), topic), wanted, counts, failures)
        else:
            await self._redrive_all(Redrive(group, None, topic), counts, failures)
        self._native.served("RedriveDeadLetters", group, topic)
        for origin, redriven in counts.items():
            self._native.moved("RedriveDeadLetters", group, origin, redriven)
        for failure in failures:
            self._metrics.refusals.labels(failure.why.code).inc()
        return pb.RedriveDeadLettersResponse(redriven=sum(counts.values()), failures=_failures(failures))

    async def _find(self, group: str, message_ids: frozenset[str]) -> dict[int, str]:
        """The dead letters with these ids, by offset."""
        found: dict[int, str] = {}
        command = FindDeadLetters(group, message_ids)
        while message_ids and command.below != 0:
            some, below = await self._engine.execute(command)
            found |= some
            command = command._replace(below=below)
        return found

    async def _redrive_named(
        self, command: Redrive, offsets: tuple[int, ...], counts: dict[str, int], failures: list[Failure]
    ) -> None:
        """Redrives the dead letters at these offsets, piece by piece."""
        while offsets:
            answer = await self._redriven(command._replace(offsets=offsets))
            _add(counts, failures, answer)
            offsets = offsets[answer.done :]

    async def _redrive_all(self, command: Redrive, counts: dict[str, int], failures: list[Failure]) -> None:
        """Redrives up to the dead letter that was last at the start; later ones stay."""
        while True:
            answer = await self._redriven(command)
            _add(counts, failures, answer)
            if answer.next >= answer.stop:
                return
            command = command._replace(start=answer.next, stop=answer.stop)

    async def _redriven(self, command: Redrive) -> Redriven:
        """The answer of one piece, once it is known what is leased."""
        answer: Redriven = await self._engine.execute(command)
        while answer.walk is not None:
            answer = await self._engine.execute(command._replace(walk=answer.walk))
        return answer


def _add(counts: dict[str, int], failures: list[Failure], answer: Redriven) -> None:
    """Adds a piece to the sums. Reports at most ENTRIES_MAX failures, as many as a request may name."""
    for topic, redriven in answer.topics.items():
        counts[topic] = counts.get(topic, 0) + redriven
    failures += answer.failures[: max(0, ENTRIES_MAX - len(failures))]


def _look_up(request: pb.LookUpRequest) -> LookUp:
    """Validates the request: exactly one of id and key, and `until_ms` not before `from_ms`."""
    if bool(request.message_id) == bool(request.key):
        raise invalid("message_id and key are both set, or none is", field="message_id", action="set one of them")
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


def _named(request: pb.RedriveDeadLettersRequest) -> tuple[list[int], frozenset[str]]:
    """Offsets and message ids, each validated."""
    check_range(len(request.offsets), "offsets", 0, ENTRIES_MAX)
    check_range(len(request.message_ids), "message_ids", 0, ENTRIES_MAX)
    for place, offset in enumerate(request.offsets):
        check_range(offset, f"offsets[{place}]", 0, INT64_MAX)
    for place, message_id in enumerate(request.message_ids):
        check_text(message_id, f"message_ids[{place}]", MESSAGE_ID_BYTES_MAX, required=True)
    return list(request.offsets), frozenset(request.message_ids)


def _no_dead_letter(message_id: str, group: str) -> Refused:
    what = f"group {group!r} has no dead letter" if group else "there is no given-up message"
    return Refused(
        "MESSAGE_NOT_FOUND",
        f"{what} with the id {message_id!r}",
        field="message_ids",
        action=f"ask why: popmq why {shlex.quote(message_id)}",
    )


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
