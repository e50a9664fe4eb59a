"""Numbers of a broker, what it holds leased, and the histories of messages. Rates are per second over the last minute,
`…_ms` since 1970 UTC. A number is None if the broker's engine does not know it; the embedded engine knows all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from popmq.errors import PopMQError
from popmq.message import Columns, Delivery
from popmq.transaction import MessagePreview


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Offsets of one queue: `max_offset` is the one that the next message gets."""

    queue: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class TopicStats:
    """A topic: messages that are stored and readable by position."""

    topic: str
    messages: int
    sent_per_s: float
    queues: Sequence[QueueStats]
    delayed: int | None = 0  # scheduled for later
    half: int | None = 0  # in transactions that are not ended
    bytes: int | None = 0  # stored
    lite_topics: int = 0  # of a LITE topic: how many there are; the other numbers are their sums
    abandoned: int = 0  # not read by groups whose subscriptions expired


@dataclass(frozen=True, slots=True)
class FairKeyStats:
    """A fair key of a group in a topic, among those that the broker has read ahead."""

    key: str
    waiting: int  # messages and retries that wait
    in_flight: int  # leased, counted where keys have a limit of these


@dataclass(frozen=True, slots=True)
class GroupStats:
    """One group in one topic; the `backlog` is what it still has to do."""

    group: str
    topic: str
    ready: int = 0  # not popped yet
    in_flight: int | None = 0  # leased, not acked; with those of owners
    retry: int = 0  # in the retry topic, deliverable
    backoff: int | None = 0  # released with a delay that is not over
    delayed: int | None = 0  # of the topic, scheduled for later
    dead: int = 0  # in the dead-letter topic, of all topics of the group
    acked: int | None = 0  # since the group exists
    quarantined: int | None = 0  # stored bytes did not match their checksum
    oldest_age: float | None = 0.0  # seconds since the oldest unfinished message was stored
    popped_per_s: float = 0.0
    acked_per_s: float = 0.0
    waiters: int = 0  # parked pops
    sessions: int | None = 0
    owners: int = 0
    waiting: int = 0  # FIFO: passed over because their message group was locked
    filtered: int | None = 0  # passed over because they did not match the filter
    stopped: int = 0  # FIFO: message groups that a failure stopped
    mode: str = "POP"  # or PULL
    read_ms: int | None = 0  # when it was last popped or pulled; 0 = not since the broker started
    expires_ms: int = 0  # when the subscription expires unless a client reads it; 0 = it is in use, or never expires
    bytes_behind: int | None = 0  # an estimate: `ready` × the mean size of the topic's messages
    dropped: int | None = 0  # by retention, before they were finished
    expired: int | None = 0  # dropped because their ttl was over
    dead_blocked: int | None = (
        0  # among in_flight: lease over, no attempt left, and no room in the store for the dead letter
    )
    keys_waiting: int | None = None  # fair keys with messages, among those that the broker has read ahead
    busiest_keys: Sequence[FairKeyStats] = ()  # those with the most waiting messages, ≤ 5

    @property
    def backlog(self) -> int:
        """Unfinished messages: ready + retry + backoff + in_flight + waiting, as far as they are known."""
        return self.ready + self.retry + (self.backoff or 0) + (self.in_flight or 0) + self.waiting


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """The release and engine of a broker. `lacking`: capabilities that the engine does not have, with alternatives.

    A call that needs one of them raises Unsupported. `weaker`: promises that the engine keeps less strictly, each with
    one sentence that says how; their calls are served. docs/capabilities.md lists all capabilities and promises.
    """

    version: str
    engine: str
    lacking: Mapping[str, str]
    weaker: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClusterBroker:
    """One process of a broker of a cluster, as the gateway that was asked sees it. None: the broker does not tell.

    `ahead_ms`: its clock before that of the gateway, to about a second. `error`: why it did not answer, "" if it did.
    """

    name: str
    id: int  # 0 = the master of its name
    address: str
    version: str  # such as V5_3_3; "" = it did not answer
    replicas: int | None  # of a master: those that are connected with it
    in_sync: int | None  # those of them that have all that it has
    ahead_ms: int | None
    disk_bytes: int | None
    disk_free_bytes: int | None
    in_flight: int  # requests of the gateway that it has not answered
    error: str

    @property
    def role(self) -> str:
        """Of the process: a replica may be master later."""
        return "replica" if self.id else "master"


@dataclass(frozen=True, slots=True)
class ClusterBrokers:
    """What `client.broker.cluster` answers. `routes_age`: seconds since a name server said last which brokers exist."""

    brokers: Sequence[ClusterBroker]
    routes_age: float | None


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The broker's store; counts are since its start."""

    map_bytes: int | None
    used_bytes: int
    disk_free_bytes: int
    commits: int | None
    fsyncs: int | None
    quarantined: int | None
    revived: int | None = 0  # leases that ended by their deadline, and how late in sum
    revived_late_ms: int | None = 0
    delayed_released: int | None = 0  # delayed messages that became visible, and how late in sum
    delayed_late_ms: int | None = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """What `client.broker.stats` answers."""

    topics: Sequence[TopicStats]
    groups: Sequence[GroupStats]
    store: StoreStats


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """One point of `client.broker.history`: sums over the topics and groups that were asked for, to seven digits.

    Rates are means since the point before. The last three are of the whole broker, and 0 with a topic or group.
    """

    time_ms: int
    sent_per_s: float = 0.0
    sent_bytes_per_s: float = 0.0
    bytes: int | None = 0  # stored in the topics
    popped_per_s: float = 0.0  # or pulled
    acked_per_s: float = 0.0
    backlog: int = 0  # ready + retry + backoff + in_flight + waiting, without unknown ones
    in_flight: int | None = 0
    retries: int = 0  # retry + backoff: they wait for another attempt; without unknown ones
    dead: int = 0  # dead letters of the groups, from all topics
    oldest_age: float | None = 0.0  # seconds since the oldest unfinished message was stored
    leases_late: float | None = 0.0  # seconds, the mean of the leases that ended since the point before
    delayed_late: float | None = 0.0  # of the delayed messages that became visible
    used_bytes: int = 0  # of the data file


@dataclass(frozen=True, slots=True)
class History:
    """What `client.broker.history` answers: at most an hour of points, the oldest first, one every `step` seconds.

    Two points are further apart if the broker was down in between. `now_ms`: the broker's time. `left_out`: there are
    more topics and groups than the broker keeps the history of, and something that was asked for is beyond.
    """

    points: Sequence[HistoryPoint]
    step: float
    now_ms: int
    left_out: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """What `client.messages.browse` answers: messages, and where to go on.

    That is `next_offset`, with an order `next_page_token`.

    `looked_at`: with an order, how many messages this page looked at. The last page has no token.
    """

    deliveries: Sequence[Delivery]
    next_offset: int
    min_offset: int
    max_offset: int
    looked_at: int = 0
    next_page_token: str = ""

    def to_arrow(self) -> Any:
        """The messages as a pyarrow.Table, as `Columns.to_arrow`."""
        return Columns.of(self.deliveries).to_arrow()

    def to_pandas(self) -> Any:
        """The messages as a pandas.DataFrame, as `Columns.to_pandas`."""
        return Columns.of(self.deliveries).to_pandas()


@dataclass(frozen=True, slots=True)
class Found:
    """What `client.messages.look_up` answers, newest first; `more`: ask again until the last one's `stored_ms`."""

    deliveries: Sequence[Delivery]
    more: bool


@dataclass(frozen=True, slots=True)
class Lease:
    """A popped batch, or the part of it that is still leased."""

    checkpoint_id: int
    group: str
    topic: str
    client_id: str
    owner: str  # set: its deadline is its owner's
    popped_ms: int
    due_ms: int
    messages: int  # popped
    undone: int
    kind: str  # normal, retry, fifo, backoff
    lease_id: str = ""  # names it in `client.leases.end`


@dataclass(frozen=True, slots=True)
class Leases:
    """What is leased or in backoff, soonest first; `total` counts also what was not asked for."""

    leases: Sequence[Lease]
    total: int


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner and what it holds."""

    group: str
    owner: str
    generation: int
    acked_epoch: int
    lease_until_ms: int
    released: bool  # its lease has expired: others may pop what it holds
    tokens: int
    messages: int
    last_seen_ms: int


@dataclass(frozen=True, slots=True)
class AccessKey:
    """An access key without its secret."""

    name: str
    allow: Sequence[str]  # send:orders, receive:orders/billing, admin, *
    expires_ms: int  # 0 = never
    secrets: int  # 2 during a rotation
    certificates: Sequence[str] = ()  # names of client certificates that stand for the key
    connections_max: int = 0  # this limit and the next two: 0 = none
    calls_per_s_max: int = 0
    bytes_in_flight_max: int = 0
    connections: int = 0  # open now
    bytes_in_flight: int = 0  # now
    calls: int = 0  # since the broker's start
    limited: int = 0  # calls refused by a limit, since then


@dataclass(frozen=True, slots=True)
class AccessKeys:
    """What `client.access_keys.list` answers: all for the right admin, else the caller's own."""

    enabled: bool  # False: the broker asks for no keys
    access_keys: Sequence[AccessKey]
    caller: str  # the name of this client's key


@dataclass(frozen=True, slots=True)
class ClientSession:
    """A client with a session: of a consumer (heartbeats), or of a transaction checker (a stream).

    `recent`: one that has neither, and is known from its calls. `pops`, `pulls`, `sends`, `host` and `access_key` are
    filled in only where `client.sessions.list` was asked with `recent=True`.
    """

    client_id: str  # of a recent one: empty if none of its calls names it
    group: str  # empty for a stream, and for what a recent one sent
    topics: Sequence[str]
    last_seen_ms: int | None
    in_flight: int | None  # messages leased to this client in this group
    stream: bool
    recent: bool = False
    pops: int = 0  # its calls that were not refused, as far back as the broker remembers it
    pulls: int = 0
    sends: int = 0
    host: str = ""  # where its last call came from; for the right admin only
    access_key: str = ""  # of that call; for the right admin only


@dataclass(frozen=True, slots=True)
class ClientAnswer:
    """What an official RocketMQ 5 client says to an operator. `code`: of apache.rocketmq.v2, "OK" when it could."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class QueueOffsets:
    """What `client.offsets.query` answers for one queue. `max_offset` is the one that the next message gets."""

    queue: int
    min_offset: int
    max_offset: int
    committed: int  # the group's next one; -1: it has none in this topic
    at_timestamp: int  # the first one stored at or after the time asked for; -1: not asked
    least_committed: int | None = -1  # of all groups of the topic; -1: it has none
    read_ms: int | None = 0  # when the group last popped or pulled this queue; 0 = not since the broker started
    bytes_behind: int = 0  # of the group, an estimate by the mean size of the topic's messages
    topic_created_ms: int = 0  # what the offsets are of: another time when the topic was deleted and created again


@dataclass(frozen=True, slots=True)
class MessageGroupState:
    """A message group of a FIFO topic that waits, is locked or stopped."""

    message_group: str
    waiting: int  # messages that were passed over and wait for their turn
    leased: int  # undone under leases, with those in backoff: they hold the lock
    stopped: bool
    reason: str  # why it is stopped


@dataclass(frozen=True, slots=True)
class MessageGroups:
    """What `client.message_groups.list` answers; the counts are of all, also of what was not asked for."""

    message_groups: Sequence[MessageGroupState]
    waiting: int  # messages
    stopped: int  # message groups


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A message that is scheduled for later; `recall_handle` recalls it."""

    topic: str
    message_id: str
    due_ms: int
    recall_handle: str
    stored_ms: int
    preview: MessagePreview | None = None  # None for an access key that may not read the topic
    message: Delivery | None = None  # as it was sent, with no handle and no place; only if it was asked for


@dataclass(frozen=True, slots=True)
class Rescheduled:
    """What `client.messages.reschedule` answers: the former recall handle means nothing any more."""

    message_id: str
    recall_handle: str
    due_ms: int


@dataclass(frozen=True, slots=True)
class DelayedMessages:
    """What `client.messages.list_delayed` answers, soonest first; `total` counts also what was not asked for."""

    messages: Sequence[DelayedMessage]
    total: int


@dataclass(frozen=True, slots=True)
class DeadLetterReason:
    """The dead letters of a group with one reason: how many, and when the first and the last came.

    `reason` is the first line of the reason, of a Python traceback the last one.
    """

    reason: str
    messages: int
    first_ms: int
    last_ms: int
    last_offset: int  # of the last one, in the dead-letter topic
    exception: str = ""  # the name with which the reason begins, as in "ValueError: no account 7"; "": none


@dataclass(frozen=True, slots=True)
class Discarded:
    """What `client.dead_letters.discard` answers: how many are removed, and which of those named were not there."""

    discarded: int
    failures: Sequence["RedriveFailure"]


@dataclass(frozen=True, slots=True)
class Redriven:
    """What `client.dead_letters.redrive` answers: how many are delivered again, and which of those named are not."""

    redriven: int
    failures: Sequence["RedriveFailure"]


@dataclass(frozen=True, slots=True)
class RedriveFailure:
    """A dead letter that was named and is not delivered again: by its place in the dead-letter topic, or by its id."""

    offset: int
    message_id: str
    error: PopMQError


@dataclass(frozen=True, slots=True)
class ClientStats:
    """Counters of a client since it was created."""

    calls: int  # requests, retries not counted
    retries: int
    sent: int  # messages that were answered, refused ones too
    send_requests: int  # requests that took; sent ÷ send_requests is what gathering made of them
    sends_waiting: int  # calls of `send` that wait, for a request in flight or for company


# ── The history of a message in each group that could read it ───────────────────────────────────────────────────────
#
# MessageLife        one for each stored message of the id: where it is
#   └─ GroupLife       for each group: its state, as one word and as a sentence
#        └─ LifeEvent    what happened, oldest first


@dataclass(frozen=True, slots=True)
class LifeEvent:
    """One thing that happened to a message in a group."""

    time_ms: int
    #: `sent`, `popped`, `renewed`, `acked`, `released`, `expired`, `rejected`, `dead`, `redriven` or `sent back`.
    what: str
    client_id: str
    until_ms: int  # popped, renewed: the lease's deadline
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class GroupLife:
    """The state of a message for one group.

    `state` is `ready`, `leased`, `backoff`, `retry`, `waiting` or `stopped` (FIFO), `acked`, `dead`, `filtered`,
    `expired` (its ttl is over), `dropped` (by retention), `skipped` (a reset or a purge), `quarantined`, `pulled`, or
    `before start`.
    """

    group: str
    state: str
    explanation: str  # a sentence
    events: Sequence[LifeEvent]


@dataclass(frozen=True, slots=True)
class MessageLife:
    """One stored message of an id. `place`: stored, delayed, half, or given up."""

    topic: str
    queue: int
    offset: int
    stored_ms: int
    place: str
    due_ms: int  # of a delayed or half message
    groups: Sequence[GroupLife]
