"""Topics and groups as the control plane shows them. Durations are seconds, `…_ms` are milliseconds since 1970 UTC."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from popmq.duration import Duration, in_seconds

#: Where a new group starts in a topic: at the first message, after the last one, or at the first one stored since a
#: time; a number is seconds since 1970 UTC.
Start = Literal["earliest", "latest"] | datetime | float
#: Where a group is moved to in a topic, of the same meaning.
Place = Literal["earliest", "latest"] | datetime

#: What the messages of a topic may ask for: see Topic.
TopicType = Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE"]
#: What clients may do with a topic: see Topic.
Permission = Literal["READ_WRITE", "READ_ONLY", "WRITE_ONLY", "NO_ACCESS"]

DEFAULT_KEEP_S = 72 * 3600.0
DEFAULT_EXPIRY_S = 90 * 86_400.0


@dataclass(frozen=True, slots=True)
class Retention:
    """When a topic drops messages.

    `by_age` false: `keep` seconds after every group is done with a message; what a group has not finished is kept.
    `by_age` true: `keep` seconds after it was stored, read or not; unread ones are counted as dropped.
    """

    keep: float = DEFAULT_KEEP_S  # 60 s – 10 years
    by_age: bool = False
    # Stored bytes of the topic, ≥ 1 MiB; 0 = no limit. Beyond it the oldest go before their time, but without `by_age`
    # only what every group is done with: then sends are refused with StorageFull.
    max_bytes: int = 0

    if TYPE_CHECKING:  # what may be given; `keep` is seconds

        def __init__(self, keep: Duration = DEFAULT_KEEP_S, by_age: bool = False, max_bytes: int = 0) -> None: ...

    def __post_init__(self) -> None:
        in_seconds(self, "keep")


@dataclass(frozen=True, slots=True)
class Quota:
    """What a topic takes; 0 = no limit. More is RateLimited, which the SDK tries again until its deadline."""

    send_messages_per_s: int = 0
    send_bytes_per_s: int = 0
    message_bytes: int = 0  # of one message's body, ≤ 4 MiB; more is InvalidField
    pop_messages_per_s: int = 0  # of each group


@dataclass(frozen=True, slots=True)
class LiteTopics:
    """What a LITE topic lets its messages make."""

    topics_max: int = 100_000  # lite topics at most, ≤ 1,000,000
    ttl: float = DEFAULT_KEEP_S  # seconds, ≥ 60: an idle one is removed after this time

    if TYPE_CHECKING:  # what may be given; `ttl` is seconds

        def __init__(self, topics_max: int = 100_000, ttl: Duration = DEFAULT_KEEP_S) -> None: ...

    def __post_init__(self) -> None:
        in_seconds(self, "ttl")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its settings.

    Its type says what its messages may ask for: NORMAL, FIFO (order by message group), DELAY, TRANSACTION, PRIORITY
    (a queue for each priority) or LITE (a small ordered topic for each name in a message's `lite_topic`). All but
    NORMAL and LITE take delayed messages and transactions.
    """

    name: str
    type: TopicType = "NORMAL"
    queues: int = 8
    retention: Retention = Retention()
    created_ms: int = 0
    quota: Quota = Quota()
    unique_ids: float = 0.0  # seconds in which a message id is stored once; 0: ids are not compared
    lite: LiteTopics | None = None  # LITE topics
    # READ_WRITE, READ_ONLY (no sends), WRITE_ONLY (no pops or pulls), NO_ACCESS: other calls are refused with
    # Forbidden.
    permission: Permission = "READ_WRITE"


@dataclass(frozen=True, slots=True)
class FairKeyLimits:
    """The limits of one fair key, instead of those of all keys. 0: no limit."""

    key: str
    in_flight_max: int = 0
    messages_per_s: int = 0


@dataclass(frozen=True, slots=True)
class FairKeys:
    """How a group takes turns by key: one message of each key in turn, whatever number of messages each has.

    Give `property`, the property of a message whose value is its key, or `message_key=True`, its first key. The limits
    are those of each key; 0: no limit. Not for FIFO and LITE topics, owners, PULL and share numbers.
    """

    property: str = ""
    message_key: bool = False
    # What comes before the first separator in a key is its label: turns go by label, then by key. ≤ 16 bytes.
    label_separator: str = ""
    in_flight_max: int = 0  # leased messages, ≤ 1,000,000
    messages_per_s: int = 0  # ≤ 1,000,000
    exceptions: Sequence[FairKeyLimits] = ()  # limits of named keys, ≤ 1,000


@dataclass(frozen=True, slots=True)
class Group:
    """A group and its settings."""

    name: str
    max_attempts: int = 17  # deliveries before the dead-letter topic
    backoff: Sequence[float] = ()  # delay before attempt 2, 3, …; the last one repeats; empty: the broker's table
    invisible: float = 60.0  # the lease of a pop that asks for none
    share_number: int = 0  # 0: every client pops every queue; n: each queue is shared by 1 + n clients
    start: Start = "earliest"
    exclusive_owner: bool = False  # what an owner holds is not popped by others after its lease has expired
    created_ms: int = 0
    fifo: bool = False  # asks clients to deliver messages one after another; FIFO topics keep order anyway
    in_flight_max: int = 10_000  # leased messages in one queue, 1–1,000,000; 0: read from an engine without this limit
    # FIFO topics: a message without an attempt left stops its message group, instead of going to the dead-letter topic.
    stop_on_failure: bool = False
    lite_exclusive: bool = False  # a lite topic belongs to the client that subscribed to it last, not to all of them
    consume_enable: bool = True  # false: its pops and pulls are Forbidden; what it has leased can be settled
    # Seconds: a topic that it has not read for so long is its own no more, and what it had not read is lost for it.
    subscription_expiry: float = DEFAULT_EXPIRY_S  # 1 h – 10 years; 0: never
    snoozes_max: int = 1_000  # how often one message may be snoozed, 1–10,000; a further snooze counts as an attempt
    dead_letter_expired: bool = False  # messages whose ttl is over become dead letters; else they are dropped
    results_keep: float = 0.0  # seconds for which results of its messages are kept, 1 min – 10 years; 0: not at all
    fair_keys: FairKeys | None = None  # None: no turns by key


@dataclass(frozen=True, slots=True)
class Subscription:
    """How a group reads one topic."""

    topic: str
    tag: str = ""  # "a || b"; "*", or neither this nor `sql`: everything
    sql: str = ""  # "region = 'eu' AND amount > 100"
    mode: str = "POP"  # or PULL
    share_number: int = 0  # for this topic instead of the group's; 0 = the group's


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which queues the broker wants this client to read, and whether the group pops or pulls the topic.

    Not `known`: it has no session of this client yet, keep what you had. `all`: every queue; pop without naming queues.
    """

    known: bool
    all: bool
    queues: Sequence[int]
    mode: str = "POP"  # or PULL


@dataclass(frozen=True, slots=True)
class Session:
    """The answer to a heartbeat: come again within `interval` seconds; another version means another assignment."""

    interval: float
    assignment_version: int
