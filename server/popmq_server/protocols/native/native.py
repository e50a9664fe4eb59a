"""popmq.v1.Broker: the data plane, one short method per call; below the service, the readers of its requests.

A reader validates every limit that needs no state, before anything waits; the engine decides the rest. An invalid
request raises; an invalid entry is replaced by its refusal in the command, and the other entries are still processed.
"""

from collections.abc import Collection

from google.protobuf.message import Message

from popmq_proto.store.store_pb2 import SendView
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import Clock
from popmq_server.contract.commands import (
    Ack,
    AckUpTo,
    AttachOwner,
    Available,
    Change,
    ChangeInvisibleTime,
    NewMessage,
    Place,
    Pop,
    PopToken,
    ReleaseOwner,
    RenewOwner,
    Send,
    Sent,
    bytes_of,
    queries,
)
from popmq_server.contract.commands.numbers import GroupNumbers
from popmq_server.contract.commands.sessions import HEARTBEAT_MS, Heartbeat
from popmq_server.contract.engine import Engine
from popmq_server.errors import Refused, invalid
from popmq_server.monitoring.metrics import Metrics
from popmq_server.monitoring.rates import Rates
from popmq_server.protocols import validation
from popmq_server.protocols.access import access_keys
from popmq_server.protocols.entries import validated
from popmq_server.protocols.native import columns, requests, responses
from popmq_server.protocols.traffic import Traffic
from popmq_server.values.limits import QUEUES_MAX
from popmq_server.values.message import (
    ALL_LITE_TOPICS,
    REASON_BYTES_MAX,
    check_lite_topic,
    check_messages_total,
    check_range,
    check_text,
)

#: Types of entries that were not refused; other entries are examined one by one.
_ACCEPTED = {NewMessage, Place, type(None)}
_TOKEN_PATHS = requests.Paths(owner="token.owner", generation="token.generation")


class NativeService:
    """Methods take request bytes and return response bytes or messages; server.py wires them by name.

    Every method returns only what was committed. It raises refusals; server.py alone puts them on the wire.
    """

    def __init__(self, engine: Engine, clock: Clock, metrics: Metrics, rates: Rates, traffic: Traffic) -> None:
        self._engine = engine
        self._clock = clock
        self._metrics = metrics
        self._rates = rates
        self._traffic = traffic
        self._pops = KnownPops()

    def _refused(self, entries: Collection[object]) -> None:
        """Counts the refused entries of a request that was served."""
        if {*map(type, entries)} <= _ACCEPTED:  # most requests: without a look at each entry
            return
        for entry in entries:
            if isinstance(entry, Refused):
                self._metrics.refusals.labels(entry.code).inc()

    async def Send(self, raw: bytes) -> bytes:
        """Stores the valid messages of a request; invalid ones are refused one by one."""
        command = read_send(raw)
        try:
            answer = await self._engine.execute(command)
        except Refused as refused:
            self._metrics.limited_by(refused, "", command.topic)
            raise
        self._refused(command.entries)
        if answer.places is not None:
            self._refused(answer.places)
        self._traffic.served("Send", "", command.topic)
        self._traffic.recent.began("sends", "", command.topic)
        if not answer.duplicate:
            sizes = stored_sizes(command, answer)
            self._traffic.moved("Send", "", command.topic, len(sizes), sum(sizes))
        return responses.sent(command, answer)

    async def Pop(self, raw: bytes) -> bytes:
        """Leases a batch, parked while nothing is deliverable; the answer is joined from stored bytes."""
        request, command = self._pops.read(raw)
        use = self._traffic.recent.began("pops", command.group, command.topic, command.client_id)
        try:
            answer = await self._engine.pop(command, request.wait_ms)
        except Refused as refused:
            self._metrics.limited_by(refused, command.group, command.topic)
            _TOKEN_PATHS.name(refused)
            self._traffic.recent.refused(use)
            raise
        self._traffic.served("Pop", command.group, command.topic)
        self._traffic.moved("Pop", command.group, command.topic, len(answer.rows), bytes_of(answer.rows))
        return responses.popped(answer, request)

    async def Ack(self, raw: bytes) -> Message:
        """Finishes deliveries; an empty list of results means that all succeeded."""
        command = read_ack(requests.read(pb.AckRequest, raw))
        answer = await self._engine.execute(command)
        self._refused(answer.results)
        self._traffic.served("Ack", command.group)
        for topic, done in answer.topics.items():
            self._traffic.moved("Ack", command.group, topic, done)
        return responses.acked(answer.results)

    async def ChangeInvisibleTime(self, raw: bytes) -> Message:
        """Extends, releases or rejects leases, each entry on its own."""
        command = read_changes(requests.read(pb.ChangeInvisibleTimeRequest, raw))
        answer = await self._engine.execute(command)
        self._refused(answer)
        self._traffic.served("ChangeInvisibleTime", command.group)
        self._traffic.moved("ChangeInvisibleTime", command.group, "", sum(isinstance(entry, tuple) for entry in answer))
        return responses.changed(answer)

    async def Heartbeat(self, raw: bytes) -> Message:
        """Renews a session (120 s) or ends it with `goodbye`."""
        request = requests.read(pb.HeartbeatRequest, raw)
        client = validation.client_id(request.client_id, required=True)
        topics, only = _read_topics(request)
        beat = Heartbeat(validation.group_name(request.group), client, topics, request.goodbye, only=only)
        version = await self._engine.execute(beat)
        self._traffic.recent.began("beats", beat.group, "", client)
        self._traffic.served("Heartbeat", beat.group)
        return pb.HeartbeatResponse(interval_ms=HEARTBEAT_MS, assignment_version=version)

    async def AttachOwner(self, raw: bytes) -> Message:
        """Creates or takes over an owner; this fences older generations."""
        command = read_attach_owner(requests.read(pb.AttachOwnerRequest, raw))
        generation, acked_epoch, queues = await self._engine.execute(command)
        self._traffic.served("AttachOwner", command.group, command.topic)
        return pb.AttachOwnerResponse(generation=generation, acked_epoch=acked_epoch, queues=queues)

    async def RenewOwner(self, raw: bytes) -> Message:
        """Extends the lease of everything that the owner holds, by writing one small key."""
        request = requests.read(pb.RenewOwnerRequest, raw)
        lease_ms = requests.invisible_ms(request.lease_ms, "lease_ms", None)
        generation = requests.generation(request.generation)
        command = RenewOwner(validation.group_name(request.group), _owner(request.owner), generation, lease_ms)
        tokens, messages, until_ms = await self._engine.execute(command)
        self._traffic.served("RenewOwner", command.group)
        return pb.RenewOwnerResponse(tokens=tokens, messages=messages, lease_until_ms=until_ms)

    async def AckUpTo(self, raw: bytes) -> Message:
        """Finishes all tokens up to an epoch. Idempotent."""
        request = requests.read(pb.AckUpToRequest, raw)
        epoch = check_range(request.epoch, "epoch", 1, requests.INT64_MAX)
        group, generation = validation.group_name(request.group), requests.generation(request.generation)
        acked, acked_epoch, topics, torn = await self._engine.execute(
            AckUpTo(group, _owner(request.owner), generation, epoch)
        )
        self._traffic.served("AckUpTo", group)
        for topic, done in topics.items():
            self._traffic.moved("Ack", group, topic, done)
        return pb.AckUpToResponse(acked=acked, acked_epoch=acked_epoch, torn=torn)

    async def ReleaseOwner(self, raw: bytes) -> Message:
        """Ends the owner's lease now."""
        request = requests.read(pb.ReleaseOwnerRequest, raw)
        command = ReleaseOwner(validation.group_name(request.group), _owner(request.owner), request.generation)
        released = await self._engine.execute(command)
        self._traffic.served("ReleaseOwner", command.group)
        return pb.ReleaseOwnerResponse(released=released)

    async def WaitAvailable(self, raw: bytes) -> Message:
        """Waits without a lease. Takes no wake from a Pop and holds no read transaction."""
        request = requests.read(pb.WaitAvailableRequest, raw)
        check_range(request.wait_ms, "wait_ms", 0, requests.WAIT_MS_MAX)
        upto_asked = requests.position(request.upto, "upto") if request.HasField("upto") else None
        topic, group = validation.topic_name(request.topic), validation.group_name(request.group)
        command = Available(topic, group, upto_asked, requests.wanted(request))
        ready, upto, topic_id = await self._engine.wait_available(command, request.min_ready, request.wait_ms)
        (row,) = await self._engine.ask(queries.Groups(topic, group))
        self._traffic.served("WaitAvailable", group, topic)
        return pb.WaitAvailableResponse(
            ready=ready, upto=responses.position(upto), stats=self.group_stats(row), topic_id=topic_id
        )

    def group_stats(self, row: GroupNumbers) -> pb.GroupStats:
        """The engine's numbers, with the rates of this process."""
        rates = self._rate(row, "Pop", "Pull"), self._rate(row, "Ack", "UpdateOffsets")
        return responses.group_stats(row, self._clock.now_ms(), rates)

    def _rate(self, row: GroupNumbers, *methods: str) -> float:
        """Messages per second that a group moved by these calls; a group either pops or pulls a topic."""
        return sum(self._rates.per_second(method, row.group, row.topic) for method in methods)


def stored_sizes(command: Send, answer: Sent) -> list[int]:
    """Bytes of each stored message, without refused ones and duplicates."""
    if answer.places is None:
        valid = command.valid
        return [len(valid[0].data)] if len(valid) == 1 else [len(entry.data) for entry in valid]
    return [
        len(entry.data)
        for entry, place in zip(command.valid, answer.places, strict=True)
        if isinstance(place, Place) and not place.duplicate
    ]


def _read_topics(request: pb.HeartbeatRequest) -> tuple[frozenset[str], dict[str, str]]:
    """(the topics that a client reads, the consume mode of those that it reads in one mode alone)."""
    lists = {"topics": request.topics, "pop_topics": request.pop_topics, "pull_topics": request.pull_topics}
    check_range(sum(map(len, lists.values())), "topics", 0, validation.ENTRIES_MAX)
    either, pops, pulls = (
        frozenset(validation.topic_name(name, f"{field}[{index}]") for index, name in enumerate(names))
        for field, names in lists.items()
    )
    only = dict.fromkeys(pops - pulls - either, "POP") | dict.fromkeys(pulls - pops - either, "PULL")
    return either | pops | pulls, only


def _owner(name: str) -> str:
    return check_text(name, "owner", requests.OWNER_BYTES_MAX, required=True)


class NativeServicer:
    """The base of NativeService and the services beside it: the engine and the counters."""

    def __init__(self, engine: Engine, traffic: Traffic, metrics: Metrics) -> None:
        self._engine = engine
        self._traffic = traffic
        self._metrics = metrics


# ── Requests ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_send(whole: bytes) -> Send:
    """The command of a Send. Validates each message on its own: an invalid one becomes its entry's refusal.

    The limits of the whole request come first, so that a request over them is refused before its messages are parsed.
    """
    view = requests.read(SendView, whole, pb.SendRequest.DESCRIPTOR.full_name)
    if len(view.messages) > validation.ENTRIES_MAX:  # before they are copied
        check_range(len(view.messages), "messages", 1, validation.ENTRIES_MAX)
    raws = list(view.messages)  # each access to the field copies a message
    total = sum(map(len, raws))
    if not raws or total > validation.SEND_BYTES_MAX:
        check_messages_total(len(raws), total, validation.ENTRIES_MAX, validation.SEND_BYTES_MAX)
    producer = read_producer(view.producer_id, view.request_number)
    entries = validated(pb.SendRequest, whole, raws, producer, view.request_number)
    return Send(validation.sent_name(view.topic), entries, producer, view.request_number, total)


def read_producer(name: str, number: int) -> str:
    """A producer id as the engine gets it. Ids can be guessed, so each access key has its own producers."""
    if not name and not number:
        return ""
    check_text(name, "producer_id", requests.PRODUCER_ID_BYTES_MAX)
    if bool(name) != bool(number):
        raise invalid(
            "producer_id and request_number belong together", field="request_number", action="set both, or neither"
        )
    key = access_keys.CALLER.get() if name else None
    return f"{key.name}/{name}" if isinstance(key, access_keys.Key) else name


def read_pop(request: pb.PopRequest) -> Pop:
    """The command of a Pop. Zeros become defaults; any other value out of range is refused, never clamped."""
    columns.check_format(request)
    token = _token(request.token) if request.HasField("token") else None
    if token is not None and request.attempt_id:
        raise invalid(
            "token and attempt_id are both set, and a token identifies the attempt already",
            field="attempt_id",
            action="set one of them",
        )
    check_range(request.wait_ms, "wait_ms", 0, requests.WAIT_MS_MAX)
    check_range(len(request.queues), "queues", 0, QUEUES_MAX)
    return Pop(
        validation.topic_name(request.topic),
        validation.group_name(request.group),
        tuple(dict.fromkeys(request.queues)),
        check_range(request.max_messages, "max_messages", 1, validation.ENTRIES_MAX, requests.POP_MESSAGES),
        check_range(request.max_bytes, "max_bytes", 1, requests.POP_BYTES_MAX, requests.POP_BYTES),
        requests.invisible_ms(request.invisible_ms, "invisible_ms"),
        validation.client_id(request.client_id),
        check_text(request.attempt_id, "attempt_id", requests.ATTEMPT_ID_BYTES_MAX),
        token,
        requests.wanted(request),
        lite=_lite_topics(request),
        handles=not (token and request.format == pb.FORMAT_COLUMNS),
    )


def _lite_topics(request: pb.PopRequest) -> tuple[str, ...] | None:
    """Names of lite topics, without duplicates; None when there are none."""
    if not request.lite_topics:
        return None
    if request.HasField("token"):
        raise invalid("token and lite_topics are both set", field="token", action="set one of them")
    check_range(len(request.lite_topics), "lite_topics", 1, requests.LITE_TOPICS_MAX)
    if ALL_LITE_TOPICS in request.lite_topics:  # which covers all others
        return (ALL_LITE_TOPICS,)
    return tuple(
        dict.fromkeys(check_lite_topic(name, f"lite_topics[{n}]") for n, name in enumerate(request.lite_topics))
    )


def _token(token: pb.Token) -> PopToken:
    """Validates a token; generation and epoch begin at 1, so that an unset field is noticed."""
    check_range(token.epoch, "token.epoch", 1, requests.INT64_MAX)
    requests.generation(token.generation, "token.generation")
    upto = requests.position(token.upto, "token.upto") if token.HasField("upto") else None
    owner = check_text(token.owner, "token.owner", requests.OWNER_BYTES_MAX, required=True)
    place = token.epoch, token.part, token.chunk
    return PopToken(owner, token.generation, *place, token.share, upto, token.topic_id)


def read_ack(request: pb.AckRequest) -> Ack:
    """The command of an Ack; the engine reads the handles."""
    check_range(len(request.handles), "handles", 1, validation.ENTRIES_MAX)
    group, handles = validation.group_name(request.group), tuple(request.handles)
    if not request.results:
        return Ack(group, handles)
    results = requests.given_results(request.results, len(handles))
    return Ack(group, handles, results, sum([len(each.body) for each in results]))


def read_changes(request: pb.ChangeInvisibleTimeRequest) -> ChangeInvisibleTime:
    """The command of a ChangeInvisibleTime: an invalid change becomes its entry's refusal."""
    check_range(len(request.changes), "changes", 1, validation.ENTRIES_MAX)
    changes: list[Change | Refused] = []
    for index, entry in enumerate(request.changes):
        try:
            changes.append(read_change(entry, f"changes[{index}]"))
        except Refused as refused:
            changes.append(refused)
    return ChangeInvisibleTime(validation.group_name(request.group), tuple(changes), request.repeated_try)


def read_change(entry: pb.InvisibleTimeChange, field: str) -> Change:
    """One entry: exactly one of extend, release, reject. `delay_ms` unset means the group's backoff, 0 means now."""
    handle = entry.handle
    kind = entry.WhichOneof("change")
    if kind == "extend":
        return Change(
            handle, kind, requests.invisible_ms(entry.extend.invisible_ms, f"{field}.extend.invisible_ms", None)
        )
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
    if entry.release.snooze and entry.release.uncounted:
        raise invalid("snooze and uncounted are both set", field=f"{field}.release.uncounted", action="set one of them")
    return Change(handle, kind, delay_ms, entry.release.uncounted, reason, entry.release.snooze)


def read_attach_owner(request: pb.AttachOwnerRequest) -> AttachOwner:
    """The command of an AttachOwner. `start` matters only for a group without a position in the topic."""
    start = requests.start_position(request.start, "start") if request.HasField("start") else None
    return AttachOwner(
        validation.group_name(request.group),
        check_text(request.owner, "owner", requests.OWNER_BYTES_MAX, required=True),
        requests.invisible_ms(request.lease_ms, "lease_ms", None),
        validation.topic_name(request.topic) if request.topic else "",
        start,
        request.create_group,
    )


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
        request = requests.read(pb.PopRequest, raw)
        command = read_pop(request)
        if not command.attempt_id and command.token is None and len(raw) <= self.BYTES_MAX:
            if len(self._known) >= self.MAX:
                self._known.clear()
            self._known[raw] = request, command
        return request, command
