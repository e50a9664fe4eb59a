"""Answers to queries: statistics of topics and groups, and the rows of lists. All times are ms.

They belong to the seam (contract/engine.py): every engine answers with them, whatever it stores. A number that may be
None is one that an engine may not know; the embedded engine knows all of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from popmq_server.values.records import Schedule, Topic

R = TypeVar("R")


class Rows(list[R]):
    """The rows of a piece of a list. `after`: where the list continues; "" = it has ended."""

    def __init__(self, rows: Iterable[R] = (), after: str = "") -> None:
        super().__init__(rows)
        self.after = after


class CountedRows(NamedTuple, Generic[R]):
    """Rows, and the number of all of them; 0 after the first page."""

    rows: Rows[R]
    total: int


class KeyNumbers(NamedTuple):
    """A fair key of a group in a topic. `in_flight`: counted where keys have a limit of leased messages."""

    key: str
    waiting: int
    in_flight: int


class GroupNumbers(NamedTuple):
    """One group in one topic.

    The unfinished messages are ready (not popped) + in_flight (leased) + retry (in the retry topic) + backoff (delayed)
    + waiting (FIFO, in message groups; `stopped` counts message groups): the `backlog`, without those that are unknown.
    `dead`: messages in the group's dead letter topic, from all topics. acked, dropped, quarantined, filtered and
    `expired` count since the group named the topic. `oldest_ms`: store time of the oldest unfinished message, 0 = none.
    With a filter `ready` and `oldest_ms` are estimates: the broker does not know whether messages that are not popped
    yet match. So they are with messages that have a ttl: one counts as ready until a pop comes to it.
    """

    group: str
    topic: str
    ready: int
    in_flight: int | None
    retry: int
    backoff: int | None
    dead: int
    acked: int | None
    dropped: int | None
    quarantined: int | None
    oldest_ms: int | None
    owners: int
    filtered: int | None = 0
    waiting: int = 0
    stopped: int = 0
    mode: str = "POP"
    delayed: int | None = 0  # of the topic: not visible to any group yet
    read_ms: int | None = 0  # when the group last read the topic; 0 = not since the start, and it is not idle
    expires_ms: int = 0  # when the subscription expires without a read; 0 = never
    bytes_behind: int | None = 0  # an estimate: backlog.sizing
    expired: int | None = 0  # dropped because their ttl was over
    dead_blocked: int | None = 0  # in_flight messages that become dead letters when the store has room
    parked: int = 0  # calls that wait for messages of the topic; parked Pulls, which wait at a queue, are not counted
    sessions: int | None = 0  # of the group's clients
    keys_waiting: int | None = None  # fair keys with messages, among those read ahead; None: no fair keys
    busiest_keys: tuple[KeyNumbers, ...] = ()

    @property
    def retries(self) -> int:
        """Messages that wait for another attempt, as far as they are known."""
        return self.retry + (self.backoff or 0)

    @property
    def backlog(self) -> int:
        """Unfinished messages, as far as they are known."""
        return self.ready + self.retries + (self.in_flight or 0) + self.waiting


class TopicNumbers(NamedTuple):
    """One topic: messages readable by position, (queue, min, max) of each queue, delayed and half messages.

    A LITE topic has the sums over its lite topics, and their number.
    """

    topic: Topic
    messages: int
    queues: list[tuple[int, int, int]]
    bytes: int | None
    delayed: int | None
    half: int | None
    lite_topics: int = 0
    abandoned: int = 0


class LeaseNumbers(NamedTuple):
    """One part of a CheckPoint's lease; several parts of one have the same `lease_id`.

    `members` were popped together, `undone` of them are under this part now. `owner`: set when the deadline is an
    owner's. `kind`: normal, retry, fifo, backoff.
    """

    lease_id: str
    group: str
    topic: str
    client: str
    owner: str
    popped_ms: int
    due_ms: int
    members: int
    undone: int
    kind: str


class LeasePage(NamedTuple):
    """A page of a list of leases. `total`: of all pages, 0 after the first one. `after`: of the next, "" = no more."""

    rows: list[LeaseNumbers]
    total: int
    after: str


class OwnerNumbers(NamedTuple):
    """One owner of a group: its open tokens, and the undone messages bound to them."""

    group: str
    owner: str
    generation: int
    acked_epoch: int
    lease_until_ms: int
    released: bool
    last_seen_ms: int
    tokens: int
    messages: int


class MessageGroupNumbers(NamedTuple):
    """One message group: `waiting` messages, `leased` ones (undone, or in backoff), whether it is stopped, and why."""

    name: str
    waiting: int
    leased: int
    stopped: bool
    reason: str


class MessagePreview(NamedTuple):
    """What a list shows of a message. `body`: its first bytes; `body_bytes`: how many the whole body has."""

    keys: tuple[str, ...]
    tag: str
    body: bytes
    body_bytes: int


class DelayedMessage(NamedTuple):
    """One row of a list of delayed messages. `preview` and `data` (popmq.v1.Message): empty if not asked for."""

    topic: str
    message_id: str
    due_ms: int
    recall_handle: str
    stored_ms: int
    preview: MessagePreview | None = None
    data: bytes = b""


class HalfMessage(NamedTuple):
    """One row of a list of half messages. `checks`: how often the broker has asked a producer about it."""

    topic: str
    message_id: str
    transaction_id: str
    stored_ms: int
    checks: int
    next_check_ms: int
    preview: MessagePreview | None = None


class ScheduleRow(NamedTuple):
    """A schedule, the popmq.v1.Message that it sends, and its next occurrences (ms) as far as they were asked for."""

    schedule: Schedule
    data: bytes
    upcoming: tuple[int, ...] = ()


class Page(NamedTuple):
    """Messages read by position: (message bytes, stored ms, queue, offset, attempts).

    `full`: a page of a queue ended at the number of messages or bytes that was asked for.
    """

    rows: list[tuple[bytes, int, int, int, int]]
    next_offset: int
    min_offset: int
    max_offset: int
    full: bool = False


class ScheduleNumbers(NamedTuple):
    """How many schedules there are, and how far ahead their next occurrence is; negative: it is late; None: none."""

    schedules: int
    ahead_ms: int | None


class Consumer(NamedTuple):
    """A client with a session. `in_flight`: messages leased to it in this group."""

    client: str
    group: str
    topics: tuple[str, ...]
    last_ms: int | None
    in_flight: int | None


class StreamNumbers(NamedTuple):
    """A producer's open stream, as listings show it. `since_ms`: when it began, or when it was heard last.

    A producer of another protocol has no topics.
    """

    client_id: str
    topics: tuple[str, ...]
    since_ms: int


class ClientNumbers(NamedTuple):
    """The clients of a group, or all."""

    consumers: list[Consumer]
    streams: list[StreamNumbers]


class StoreNumbers(NamedTuple):
    """Where messages are stored: its limit, used bytes, the free bytes of its disk, and records in quarantine."""

    map_bytes: int | None
    used_bytes: int
    disk_free_bytes: int
    quarantined: int | None


class EventNumbers(NamedTuple):
    """Events of one `kind` in a group and topic, for the metrics. `messages`: the number of affected messages."""

    kind: str
    group: str
    topic: str
    messages: int


class CommitNumbers(NamedTuple):
    """One commit batch, for the metrics.

    `wrote`: whether it changed the store. `seconds`: the whole batch, fsync included. `late_ms`, `delayed_late_ms`: how
    late expired leases and delayed messages were. `given_up`: half messages that are no longer checked. `failures`: the
    maintenance job of each piece that failed. `broken`: the invariant of each command or piece that met a broken one.
    """

    wrote: bool
    commands: int
    seconds: float
    late_ms: Sequence[int]
    delayed_late_ms: Sequence[int]
    given_up: int
    events: Sequence[EventNumbers]
    failures: Sequence[str] = ()
    broken: Sequence[str] = ()


class ClusterBroker(NamedTuple):
    """One process of a broker of a cluster, as the gateway that was asked sees it. None: it does not tell.

    `id`: 0 of the master of its name. `replicas`: that are connected with a master, and those of them that have all it
    has. `ahead_ms`: its clock before ours. `in_flight`: requests of this gateway. `error`: "" if it answered.
    """

    name: str
    id: int
    address: str
    version: str
    replicas: int | None
    in_sync: int | None
    ahead_ms: int | None
    disk_bytes: int | None
    disk_free_bytes: int | None
    in_flight: int
    error: str


class ClusterBrokers(NamedTuple):
    """Its brokers, sorted. `routes_age_ms`: since a name server said which there are; None: none has, or no cluster."""

    brokers: Sequence[ClusterBroker] = ()
    routes_age_ms: int | None = None


class EngineInfo(NamedTuple):
    """What keeps the messages. `lacking`: names of capabilities (contract/capabilities.py) that it does not have.

    `weaker`: for each promise (contract/promises.py) that it keeps less strictly, in one sentence how.
    """

    engine: str
    lacking: frozenset[str] = frozenset()
    weaker: Mapping[str, str] = MappingProxyType({})
