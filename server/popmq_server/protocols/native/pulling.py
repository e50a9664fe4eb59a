"""popmq.v1: reading by queue and offset, and queue assignment. docs/pull.md describes both.

Pull                            broker.pull, pull.py      QueryAssignment, LockQueues …    consumers.py
UpdateOffsets, QueryOffsets …   offsets.py                SetConsumeMode                   consume_mode.py
SendBack                        send_back.py              ListSessions                     consumers.py
"""

import sys
from collections.abc import Mapping, Sequence

from google.protobuf.message import Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract.commands import (
    AssignmentOf,
    Clients,
    CloneOffsets,
    LockQueues,
    Pull,
    QueryOffsets,
    ResetOffsets,
    SendBack,
    SentBack,
    SetConsumeMode,
    UnlockQueues,
    UpdateOffsets,
    bytes_of,
    queries,
)
from popmq_server.contract.commands.sessions import LOCK_MS
from popmq_server.contract.rights import Need
from popmq_server.errors import Refused, invalid, not_one_of
from popmq_server.protocols import validation
from popmq_server.protocols.access import access_keys
from popmq_server.protocols.native import (
    columns,
    pages,
    requests,
    responses,
)
from popmq_server.protocols.native.native import NativeServicer
from popmq_server.protocols.native.requests import INT64_MAX, MAX_ATTEMPTS_MAX, read
from popmq_server.values import limits
from popmq_server.values.message import (
    REASON_BYTES_MAX,
    RETRY_PREFIX,
    check_range,
    check_text,
)

#: Queues that one request may name.
QUEUES_MAX = limits.QUEUES_MAX
#: Attempts that a consumer may report: with the attempts that may follow they fit into 16 bits.
ATTEMPTS_MAX = 10_000
#: Clients whose leased messages one query counts.
HELD_AT_ONCE = 2000


class PullingService(NativeServicer):
    """`native` counts requests and messages."""

    # ── Reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def Pull(self, raw: bytes) -> bytes:
        """Reads one queue, parked at its end; the answer is joined from stored bytes."""
        request = read(pb.PullRequest, raw)
        command = _pull(request)
        wait_ms = check_range(request.wait_ms, "wait_ms", 0, requests.WAIT_MS_MAX)
        topic = _read_topic(command.topic)
        use = self._traffic.recent.began("pulls", command.group, topic)
        try:
            with self._metrics.limits(command.group, topic):
                answer = await self._engine.pull(command, wait_ms)
        except Refused:
            self._traffic.recent.refused(use)
            raise
        self._traffic.served("Pull", command.group, topic)
        self._metrics.pulls.labels(answer.status, command.group, topic).inc()
        self._traffic.moved("Pull", command.group, topic, len(answer.rows), bytes_of(answer.rows))
        self._traffic.moved("UpdateOffsets", command.group, topic, answer.acked)
        return await responses.pulled(answer, request)

    async def UpdateOffsets(self, raw: bytes) -> Message:
        """Moves committed offsets."""
        request = read(pb.UpdateOffsetsRequest, raw)
        topic, group = validation.browsed_name(request.topic), validation.group_name(request.group)
        command = UpdateOffsets(topic, group, _offsets(request.offsets), _created(request))
        moved = await self._engine.execute(command)
        self._traffic.moved("UpdateOffsets", group, _read_topic(topic), moved)
        self._traffic.served("UpdateOffsets", group, _read_topic(topic))
        return pb.UpdateOffsetsResponse()

    async def QueryOffsets(self, raw: bytes) -> Message:
        """The ends of each queue, the group's committed offset, and the first offset at a time."""
        request = read(pb.QueryOffsetsRequest, raw)
        since_ms = None
        if request.HasField("timestamp_ms"):
            since_ms = check_range(request.timestamp_ms, "timestamp_ms", 0, INT64_MAX)
        group = validation.group_name(request.group) if request.group else ""
        rows = await self._engine.execute(QueryOffsets(validation.browsed_name(request.topic), group, since_ms))
        return pb.QueryOffsetsResponse(queues=[pb.QueueOffsets(**row._asdict()) for row in rows])

    async def SendBack(self, raw: bytes) -> Message:
        """Sends pulled messages back for a retry, each entry on its own."""
        request = read(pb.SendBackRequest, raw)
        check_range(len(request.messages), "messages", 1, validation.ENTRIES_MAX)
        entries = tuple(_sent_back(entry, f"messages[{index}]") for index, entry in enumerate(request.messages))
        topic, group = validation.topic_name(request.topic), validation.group_name(request.group)
        client = validation.client_id(request.client_id)
        answer = await self._engine.execute(SendBack(topic, group, entries, client, _created(request)))
        for entry in answer:
            if isinstance(entry, Refused):
                self._metrics.refusals.labels(entry.code).inc()
        self._traffic.served("SendBack", group, topic)
        self._traffic.moved("SendBack", group, topic, sum(isinstance(entry, tuple) for entry in answer))
        return pb.SendBackResponse(results=responses.changed(answer).results)

    # ── Assignment, locks, sessions ──────────────────────────────────────────────────────────────────────────────

    async def QueryAssignment(self, raw: bytes) -> Message:
        """The broker-side rebalance, computed on request: no client waits for another."""
        request = read(pb.QueryAssignmentRequest, raw)
        client = _client(request.client_id)
        topic, group = validation.browsed_name(request.topic), validation.group_name(request.group)
        found = await self._engine.ask(AssignmentOf(topic, group, client, request.strategy, request.broadcast))
        self._traffic.served("QueryAssignment", group, _read_topic(topic))
        return pb.QueryAssignmentResponse(known=found.known, all=found.all, queues=found.queues, mode=found.mode)

    async def LockQueues(self, raw: bytes) -> Message:
        """Locks or renews queues for one client; returns all that it holds now."""
        request = read(pb.LockQueuesRequest, raw)
        check_range(len(request.queues), "queues", 1, QUEUES_MAX)
        topic, group = validation.topic_name(request.topic), validation.group_name(request.group)
        held = await self._engine.execute(LockQueues(topic, group, _client(request.client_id), tuple(request.queues)))
        self._traffic.served("LockQueues", group, topic)
        return pb.LockQueuesResponse(queues=held, lock_ms=LOCK_MS)

    async def UnlockQueues(self, raw: bytes) -> Message:
        """Unlocks queues; an empty list unlocks all of the client's."""
        request = read(pb.UnlockQueuesRequest, raw)
        check_range(len(request.queues), "queues", 0, QUEUES_MAX)
        topic, group = validation.topic_name(request.topic), validation.group_name(request.group)
        await self._engine.execute(UnlockQueues(topic, group, _client(request.client_id), tuple(request.queues)))
        return pb.UnlockQueuesResponse()

    async def ListSessions(self, raw: bytes) -> Message:
        """Consumers with their messages in flight, the producer streams, which have no group, and clients that call."""
        request = read(pb.ListSessionsRequest, raw)
        page, group = pages.asked(request), validation.group_name(request.group) if request.group else ""
        if request.recent:  # a call belongs to the session of its client, which may be on another page
            behind, rows_max = ("", ""), 0
        else:
            behind, rows_max = _behind(page["after"]), page["rows_max"] and page["rows_max"] + 1  # one more: whether
        consumers, streams = await self._engine.ask(Clients(group, behind, rows_max))  # there is another page
        sessions = [
            pb.ClientSession(
                client_id=row.client,
                group=row.group,
                topics=row.topics,
                last_seen_ms=row.last_ms,
                in_flight=row.in_flight,
            )
            for row in consumers
        ]
        sessions += [
            pb.ClientSession(
                client_id=row.client_id, topics=row.topics, last_seen_ms=row.since_ms, in_flight=0, stream=True
            )
            for row in streams
        ]
        if request.recent:
            sessions += await self._recent(group, sessions)
        shown, token = pages.cut(sessions, request, _listed_as)
        return pb.ListSessionsResponse(sessions=shown, next_page_token=token)

    async def _recent(self, group: str, sessions: list[pb.ClientSession]) -> list[pb.ClientSession]:
        """Adds the recent calls of clients with a session to its row; returns the rows of the other clients."""
        known = {(row.client_id, row.group): row for row in sessions if not row.stream}
        others, holders = dict[tuple[str, ...], pb.ClientSession](), dict[tuple[str, ...], set[tuple[str, str]]]()
        is_admin = access_keys.may(Need("admin"))
        for one in sorted(self._traffic.recent.listed(group), key=lambda one: one.last_ms):
            row = known.get((one.client_id, one.group)) if one.group else None
            if row is None:
                whose = (one.group, one.client_id, *((one.key, one.host) if is_admin else ()))
                made = pb.ClientSession(client_id=one.client_id, group=one.group, in_flight=0, recent=True)
                row = others.setdefault(whose, made)
                row.topics[:] = sorted({*row.topics, *one.topics})
                row.last_seen_ms = one.last_ms
                if one.group and one.client_id:  # leases of apache.rocketmq.v2 are of "key/client id"
                    pair = (one.group, one.client_id), (one.group, f"{one.key}/{one.client_id}")
                    holders.setdefault(whose, set()).update(pair)
            row.pops, row.pulls, row.sends = row.pops + one.pops, row.pulls + one.pulls, row.sends + one.sends
            if is_admin:
                row.host, row.access_key = one.host, one.key
        held = await self._held([pair for pairs in holders.values() for pair in pairs])
        for whose, pairs in holders.items():
            if held is None:
                others[whose].ClearField("in_flight")
            else:
                others[whose].in_flight = sum(held.get(pair, 0) for pair in pairs)
        return list(others.values())

    async def _held(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int] | None:
        """The number of messages that each (group, client) holds; None: the engine does not know it."""
        held: dict[tuple[str, str], int] = {}
        for first in range(0, len(pairs), HELD_AT_ONCE):
            counts = await self._engine.ask(queries.HeldBy(tuple(pairs[first : first + HELD_AT_ONCE])))
            if counts is None:
                return None
            held |= counts
        return held

    # ── Operators' calls ─────────────────────────────────────────────────────────────────────────────────────────

    async def SetConsumeMode(self, raw: bytes) -> Message:
        """Switches a group in a topic; the answer comes when everything leased has been moved for the new mode."""
        request = read(pb.SetConsumeModeRequest, raw)
        if request.mode not in pb.ConsumeMode.values():
            raise not_one_of("mode", request.mode, pb.ConsumeMode.keys())
        share_number = check_range(request.share_number, "share_number", 0, limits.SHARE_NUMBER_MAX)
        topic, group = validation.topic_name(request.topic), validation.group_name(request.group)
        mode = pb.ConsumeMode.Name(request.mode)
        start = requests.start_position(request.start, "start") if request.HasField("start") else None
        changed = await self._engine.execute(SetConsumeMode(topic, group, mode, share_number, start))
        return pb.SetConsumeModeResponse(subscription=responses.subscription(topic, changed))

    async def ResetOffsets(self, raw: bytes) -> Message:
        """Moves a group; the answer comes when everything that it held before is removed."""
        request = read(pb.ResetOffsetsRequest, raw)
        if request.HasField("to") == bool(request.offsets):
            raise invalid(
                "name either a position or the offsets of queues", field="to", action="set to or offsets, not both"
            )
        to = requests.start_position(request.to, "to") if request.HasField("to") else None
        offsets = _offsets(request.offsets) if request.offsets else None
        topic, group = validation.topic_name(request.topic), validation.group_name(request.group)
        return pb.ResetOffsetsResponse(offsets=await self._engine.execute(ResetOffsets(topic, group, to, offsets)))

    async def CloneOffsets(self, raw: bytes) -> Message:
        """Moves a group to the position of another."""
        request = read(pb.CloneOffsetsRequest, raw)
        from_group = validation.group_name(request.from_group, "from_group")
        command = CloneOffsets(validation.topic_name(request.topic), from_group, validation.group_name(request.group))
        return pb.CloneOffsetsResponse(offsets=await self._engine.execute(command))


def _pull(request: pb.PullRequest) -> Pull:
    """The command of a Pull. Zeros become defaults; any other value out of range is refused, never clamped."""
    commit_offset = None
    if request.HasField("commit_offset"):
        commit_offset = check_range(request.commit_offset, "commit_offset", 0, INT64_MAX)
    columns.check_format(request)
    _check_end(request)
    return Pull(
        validation.browsed_name(request.topic),
        validation.group_name(request.group) if request.group else "",
        request.queue,
        check_range(request.offset, "offset", 0, INT64_MAX),
        check_range(request.max_messages, "max_messages", 1, validation.ENTRIES_MAX, requests.POP_MESSAGES),
        check_range(request.max_bytes, "max_bytes", 1, requests.POP_BYTES_MAX, requests.POP_BYTES),
        requests.wanted(request),
        commit_offset,
        end_offset=request.end_offset,
        body="body" in columns.columns_of(request),
        topic_created_ms=_created(request),
    )


def _created(request: pb.PullRequest | pb.UpdateOffsetsRequest | pb.SendBackRequest) -> int:
    return check_range(request.topic_created_ms, "topic_created_ms", 0, INT64_MAX)


def _check_end(request: pb.PullRequest) -> None:
    """A bounded read ends at its bound, and has nothing to wait for."""
    if request.end_offset and request.end_offset <= request.offset:
        raise invalid(
            "end_offset must be greater than offset", field="end_offset", action="raise it, or leave it unset"
        )
    if request.end_offset and request.wait_ms:
        raise invalid("a read with an end does not wait", field="wait_ms", action="leave wait_ms or end_offset unset")


def _offsets(offsets: Mapping[int, int]) -> dict[int, int]:
    """Offsets by queue, validated. Raises Refused."""
    check_range(len(offsets), "offsets", 1, QUEUES_MAX)
    return {queue: check_range(offset, f"offsets[{queue}]", 0, INT64_MAX) for queue, offset in offsets.items()}


def _sent_back(entry: pb.SentBack, field: str) -> SentBack | Refused:
    """One message, or its refusal: the other entries are still processed."""
    try:
        delay_ms = None
        if entry.HasField("delay_ms"):
            delay_ms = check_range(entry.delay_ms, f"{field}.delay_ms", 0, validation.INVISIBLE_MS_MAX)
        return SentBack(
            entry.queue,
            check_range(entry.offset, f"{field}.offset", 0, INT64_MAX),
            entry.retry,
            delay_ms,
            check_text(entry.reason, f"{field}.reason", REASON_BYTES_MAX),
            entry.reject,
            check_range(entry.attempts, f"{field}.attempts", 0, ATTEMPTS_MAX),
            check_range(entry.max_attempts, f"{field}.max_attempts", 0, MAX_ATTEMPTS_MAX),
        )
    except Refused as refused:
        return refused


def _client(client: str) -> str:
    return validation.client_id(client, required=True)


def _listed_as(row: pb.ClientSession) -> str:
    """The name of a row of sessions: sessions come first, then streams, then clients that only call."""
    kind = 2 if row.recent else int(row.stream)
    return f"{kind} {row.group} {row.client_id}" + (f" {row.access_key} {row.host}" if row.recent else "")


def _behind(token: str) -> tuple[str, str]:
    """The group and client of the last row of a page of sessions: "0 group client", or "1  client" of a stream."""
    kind, _, named = token.partition(" ")
    group, _, client = named.partition(" ")
    return (chr(sys.maxunicode), "") if kind == "1" else (group, client)


def _read_topic(topic: str) -> str:
    """The topic of a retry topic, or the topic itself: metrics have no series for retry topics."""
    return topic.rpartition("+")[2] if topic.startswith(RETRY_PREFIX) else topic
