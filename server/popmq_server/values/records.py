"""Records: topics, groups, owners, tokens, and their counters.

All records are immutable. The tables of state.py hold them, so an aborted commit can undo each change; the store has
them as JSON or packed numbers (row_formats.py).
"""

from typing import NamedTuple

from popmq_server.values.ids import GroupId, TopicId
from popmq_server.values.message import DEAD_LETTER_PREFIX, RESULT_PREFIX

#: Leased messages of a group in one queue, for ordinary pops.
IN_FLIGHT_MAX = 10_000
#: Time after which an idle subscription is removed (idle_subscriptions.py). The group loses its unread messages.
SUBSCRIPTION_EXPIRY_MS = 90 * 86_400_000
#: How often a group may snooze one message.
SNOOZES_MAX = 1_000
#: Messages popped from the retry topic count as leased from this queue: otherwise messages that are never acked would
#: be retried and make room for more and more new ones.
RETRY_QUEUE = 0xFFFF


class Topic(NamedTuple):
    """Settings of a topic; times in ms.

    `by_age`: retention counts from the store time, read or not; otherwise from when every group has passed a message.
    """

    topic_id: TopicId
    name: str
    queues: int
    by_age: bool
    keep_ms: int
    created_ms: int
    type: str = "NORMAL"  # NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY, LITE
    bytes_max: int = 0  # retention by size
    unique_ids_ms: int = 0  # within this time a message id is stored only once
    send_messages_per_s: int = 0
    send_bytes_per_s: int = 0
    message_bytes_max: int = 0
    pop_messages_per_s: int = 0
    lite_topics_max: int = 0  # LITE
    lite_ttl_ms: int = 0  # LITE: an idle lite topic is removed after this time
    parent_id: TopicId = TopicId(0)  # of a lite topic, which has the name of its parent: see lite_topics.py
    lite_topic: str = ""
    idle_ms: int = 0  # since when a lite topic is idle; 0 = in use, or not checked yet
    permission: str = "READ_WRITE"  # or READ_ONLY, WRITE_ONLY, NO_ACCESS: permission.py
    moving_from: TopicId = TopicId(0)  # the purged topic with groups that have to be moved to this one: purge.py
    expires: bool = False  # messages with a ttl were sent to it: pops look at the ttl of each message
    lagging: bool = False  # groups have to be moved past dropped chunks: retention/floors.py

    @property
    def is_dead_letter(self) -> bool:
        return self.name.startswith(DEAD_LETTER_PREFIX)

    @property
    def is_own(self) -> bool:
        """Whether only the broker writes to it: a dead letter topic, or one of results."""
        return self.name.startswith((DEAD_LETTER_PREFIX, RESULT_PREFIX))

    @property
    def in_order(self) -> bool:
        """Whether message groups keep their order: a lite topic is one message group."""
        return self.type == "FIFO" or self.parent_id > 0


class KeyLimits(NamedTuple):
    """The limits of one fair key, instead of those of all keys; 0 = no limit."""

    key: str
    in_flight_max: int = 0
    messages_per_s: int = 0


class FairKeys(NamedTuple):
    """How a group takes turns by key. The limits are those of each key; 0 = no limit.

    `source`: "property" (the one named `property_name`), "key" (the first key of a message), or "" = the group takes no
    turns now, but did so once, and may have passed messages out of order. `separator`: what comes before the first one
    in a key is its label, and turns go by label, then by key; "" = there are no labels.
    """

    source: str = ""
    property_name: str = ""
    separator: str = ""
    in_flight_max: int = 0
    messages_per_s: int = 0
    exceptions: tuple[KeyLimits, ...] = ()

    @property
    def on(self) -> bool:
        """Whether the group takes turns by key now."""
        return bool(self.source)

    @property
    def limits_leases(self) -> bool:
        """Whether any key has a limit of leased messages."""
        return bool(self.in_flight_max) or any(one.in_flight_max for one in self.exceptions)


class Group(NamedTuple):
    """Settings of a group; times in ms. The fields are those of commands.CreateGroup, which describes them."""

    group_id: GroupId
    name: str
    max_attempts: int
    delays_ms: tuple[int, ...]
    invisible_ms: int
    share_number: int
    start_from: str  # EARLIEST, LATEST, TIMESTAMP
    start_ms: int
    exclusive_owner: bool
    fifo: bool
    in_flight_max: int
    stop_on_failure: bool
    lite_exclusive: bool
    consume_enable: bool
    subscription_expiry_ms: int
    created_ms: int
    snoozes_max: int = SNOOZES_MAX
    dead_letter_expired: bool = False
    results_keep_ms: int = 0  # how long results are kept; 0 = not at all
    fair_keys: FairKeys | None = None

    def backoff_ms(self, attempts: int) -> int:
        """The delay before the next attempt, after `attempts` of them (at least 1); the last of `delays_ms` repeats."""
        return self.delays_ms[min(attempts, len(self.delays_ms)) - 1]


class Subscription(NamedTuple):
    """Settings of a group's subscription to a topic, made by a Pop or an operator.

    `filter_kind`: "" (all), "tag", "sql92"; `filter_text` normalised. `mode`: POP or PULL. `share_number`
    0: the group's. `pulled`: it was PULL at some time, so a message may have been sent back twice.
    `idle_ms`: time of the last read, once that is an hour ago; 0 = in use. `warned_ms`: time of the expiry warning.
    """

    filter_kind: str = ""
    filter_text: str = ""
    mode: str = "POP"
    share_number: int = 0
    pulled: bool = False
    idle_ms: int = 0
    warned_ms: int = 0

    @property
    def pulls(self) -> bool:
        return self.mode == "PULL"


class Void(NamedTuple):
    """The entries of a group in a topic that a reset made void, removed already or not: see invalidated.py.

    `ck_id`, `rseq`: leases and retry entries with lower numbers existed at the reset; they are void if their message is
    at or above the bound of its queue. `bounds`: by queue; -1 = none of it. `stays`: by queue; entries of messages that
    left their queue stay from this offset on, since the group could not read them again. Empty: all of these stay.
    """

    ck_id: int
    rseq: int
    bounds: tuple[int, ...]
    stays: tuple[int, ...] = ()

    def covers(self, queue: int, offset: int) -> bool:
        """Whether the entry of a message is void, if it existed at the reset."""
        return queue < len(self.bounds) and 0 <= self.bounds[queue] <= offset

    def keeps(self, queue: int, offset: int) -> bool:
        """Whether the entry of a message stays valid if its queue no longer has the message."""
        return queue >= len(self.stays) or self.stays[queue] <= offset


class SweepWork(NamedTuple):
    """The remaining work of a reset or a consume mode switch: see sweep.py. No field is set: none.

    `looked_at`: retry entries below are not void. `to_retry`: leased and waiting messages move to the retry topic.
    `to_lines`: retry entries move to wait in their message groups. `clear_lines`: waiting messages are void.
    """

    voids: tuple[Void, ...] = ()
    looked_at: int = 0
    to_retry: bool = False
    to_lines: bool = False
    clear_lines: bool = False

    @property
    def hides(self) -> bool:
        """Whether the sweep still rebuilds the order of message groups: until it ends pops return nothing."""
        return self.to_lines or self.clear_lines


class Lites(NamedTuple):
    """The number of lite topics of a topic, and of the messages that they store."""

    topics: int = 0
    messages: int = 0


class TopicStat(NamedTuple):
    """Counters of a topic, updated in the transaction that moves the messages."""

    bytes: int = 0  # of its chunks in the log
    delayed: int = 0
    half: int = 0
    redriven: int = 0  # of a dead letter topic: redriven dead letters that are still in the log
    abandoned: int = 0  # unread by groups whose idle subscriptions were removed: idle_subscriptions.py


class OpenChunk(NamedTuple):
    """The last chunk of a topic, while small commits may still append to it: see topic.py."""

    position: int
    bytes: int
    since_ms: int  # when its first message was stored


class Stat(NamedTuple):
    """Counters of one group in one topic, updated in the transaction that moves the messages."""

    retry: int = 0  # entries in the retry topic
    acked: int = 0
    dead: int = 0
    dropped: int = 0
    quarantined: int = 0
    start: int = 0  # sum of the offsets at which the group began: messages passed since are in the other counters
    filtered: int = 0  # skipped because they did not match the filter
    waiting: int = 0  # FIFO: entries of `fwait`
    expired: int = 0  # dropped because their ttl was over


class HeldNumbers(NamedTuple):
    """Numbers of messages of a group in a topic under leases; they follow from `ck` and `due`."""

    ordinary: int = 0
    owned: int = 0
    backoff: int = 0


class Owner(NamedTuple):
    """A durable reader of a group: see owner.py.

    `released`: its lease expired; its messages are in the retry topic (in an exclusive group they stay leased to it).
    `topics`: ids of those that it was attached for, or has popped with tokens; some may be deleted.
    """

    owner_id: int
    group_id: GroupId
    key: bytes  # hash16 of its name
    name: str
    generation: int
    lease_until_ms: int
    acked_epoch: int
    last_seen_ms: int
    released: bool
    topics: tuple[int, ...] = ()


class Token(NamedTuple):
    """A sealed pop of an owner.

    `ck_id` 0: the set is empty, and stays so. `end`: there were no more messages for this epoch when it was sealed.
    """

    owner_id: int
    epoch: int
    part: int
    chunk: int
    ck_id: int
    members: int
    end: bool


class Counters(NamedTuple):
    """Counters that only grow, except that `saved_ms` is set back by rebase.py."""

    position: int = 0  # of the next record
    ck_id: int = 1
    rseq: int = 1
    entity: int = 1  # topics, groups, owners
    saved_ms: int = 0
    sched_id: int = 1  # delayed messages
    txn_id: int = 1  # half messages
    stage_id: int = 1  # stages, and their order in the list of the publishing job


class Schedule(NamedTuple):
    """A schedule and the counts of its occurrences; times in ms of the wall clock. Its message is in `cronmsg`.

    `next_ms`: the next occurrence, 0 = none (paused). `looked_ms`: when that was found. `last_ms`: the occurrence that
    was sent last. `sent` counts messages, `skipped` occurrences that were missed and not sent (at most 1,000 of one
    gap), `failed` those that the topic refused; `error` says why the last one was.
    """

    name: str
    cron: str
    zone: str
    topic: str
    missed: str
    created_ms: int
    lite_topic: str = ""
    paused: bool = False
    next_ms: int = 0
    looked_ms: int = 0
    last_ms: int = 0
    sent: int = 0
    skipped: int = 0
    failed: int = 0
    error: str = ""


class Terms(NamedTuple):
    """The inputs of the assignment of a group's queues in a topic, besides the clients."""

    queues: int
    mode: str  # POP or PULL
    share_number: int  # of the group in this topic, else of the group
