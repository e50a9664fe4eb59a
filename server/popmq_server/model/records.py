"""What there is: topics, groups, owners, tokens, and the numbers that are kept of them.

Plain immutable records. Tables (state.py) hold them, so an aborted commit can take every change back; the store keeps
them as JSON or packed numbers (storage/keys.py).
"""

from typing import NamedTuple

from popmq_server.model.message import DEAD_LETTER_PREFIX

#: Leased messages of a group in one queue, for ordinary pops.
IN_FLIGHT_MAX = 10_000
#: A subscription that nobody reads expires after so long by default: expiry.py. What expires is lost for its group.
SUBSCRIPTION_EXPIRY_MS = 90 * 86_400_000
#: What was popped from the retry topic counts as leased from this queue: else messages that nobody acks would go round
#: and make place for ever new ones.
RETRY_QUEUE = 0xFFFF


class Topic(NamedTuple):
    """Settings of a topic; times in ms.

    `by_age`: retention counts from the time of storing, read or not; else from when every group has moved past.
    """

    topic_id: int
    name: str
    queues: int
    by_age: bool
    keep_ms: int
    created_ms: int
    type: str = "NORMAL"  # NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY, LITE
    bytes_max: int = 0  # retention by size
    unique_ids_ms: int = 0  # a message id is stored once in this time
    send_messages_per_s: int = 0
    send_bytes_per_s: int = 0
    message_bytes_max: int = 0
    pop_messages_per_s: int = 0
    lite_topics_max: int = 0  # LITE
    lite_ttl_ms: int = 0  # LITE: a lite topic goes when it was idle for so long
    parent_id: int = 0  # of a lite topic, which has the name of its parent: see lite_topics.py
    lite_topic: str = ""
    idle_ms: int = 0  # since when nobody needs a lite topic; 0 = it is in use, or nobody has looked
    permission: str = "READ_WRITE"  # or READ_ONLY, WRITE_ONLY, NO_ACCESS: permission.py

    @property
    def is_dead_letter(self) -> bool:
        return self.name.startswith(DEAD_LETTER_PREFIX)

    @property
    def in_order(self) -> bool:
        """Whether message groups keep their order: a lite topic is one message group."""
        return self.type == "FIFO" or self.parent_id > 0


class Group(NamedTuple):
    """Settings of a group; times in ms. The fields are those of commands.CreateGroup, which explains them."""

    group_id: int
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


class Subscription(NamedTuple):
    """How a group reads a topic: what a Pop or an operator has fixed.

    `filter_kind`: "" (all), "tag", "sql92"; `filter_text` normalised. `mode`: POP or PULL. `share_number`
    0: the group's. `pulled`: it was PULL at some time, so a message may have been sent back twice.
    `idle_ms`: when it was read last, once that is an hour ago; 0 = it is in use. `warned_ms`: when its expiry was told.
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
    """What a group has lost in a topic, whether it is removed already or not: see invalidated.py.

    Leases and retry entries that were there then, by their numbers: those of messages at or above the bound of their
    queue. `bounds`: by queue; -1 = nothing of it. `stays`: by queue; messages that their queue does not have any more
    are not lost from this offset on, since nobody could read them again. Empty: none of them is lost.
    """

    ck_id: int
    rseq: int
    bounds: tuple[int, ...]
    stays: tuple[int, ...] = ()

    def covers(self, queue: int, offset: int) -> bool:
        """Whether a message is among them, if it was held then."""
        return queue < len(self.bounds) and 0 <= self.bounds[queue] <= offset

    def keeps(self, queue: int, offset: int) -> bool:
        """Whether it is kept all the same when its queue does not have it any more."""
        return queue >= len(self.stays) or self.stays[queue] <= offset


class Sweep(NamedTuple):
    """What a reset or a switch of the consume mode has left to do: see sweep.py. No field is set: nothing.

    `looked_at`: retry entries below are not void. `to_retry`: what is leased or waits goes to the retry topic.
    `to_lines`: what stands in the retry topic goes to wait in its message group. `clear_lines`: what waits is void.
    """

    voids: tuple[Void, ...] = ()
    looked_at: int = 0
    to_retry: bool = False
    to_lines: bool = False
    clear_lines: bool = False

    @property
    def hides(self) -> bool:
        """Whether the order of message groups is being made: until then nobody pops."""
        return self.to_lines or self.clear_lines


class Lites(NamedTuple):
    """The lite topics of a topic: how many there are, and the messages that they store."""

    topics: int = 0
    messages: int = 0


class TopicStat(NamedTuple):
    """Counters of a topic, moved in the transaction that moves the messages."""

    bytes: int = 0  # of its chunks in the log
    delayed: int = 0
    half: int = 0
    redriven: int = 0  # of a dead-letter topic: letters that were redriven and still stand in the log
    abandoned: int = 0  # what groups had not read when their subscriptions expired: expiry.py


class OpenChunk(NamedTuple):
    """The last chunk of a topic, while small commits may still be stored behind what it has: see topic.py."""

    position: int
    bytes: int
    since_ms: int  # when its first message was stored


class Stat(NamedTuple):
    """Counters of one group in one topic, moved in the transaction that moves the messages."""

    retry: int = 0  # entries in the retry topic
    acked: int = 0
    dead: int = 0
    expired: int = 0
    quarantined: int = 0
    start: int = 0  # sum of the offsets at which the group began: what it has passed since is in one of the others
    filtered: int = 0  # passed over because they did not match the filter
    waiting: int = 0  # FIFO: entries of `fwait`


class Held(NamedTuple):
    """How many messages of a group in a topic are under a lease; follows from `ck` and `due`."""

    ordinary: int = 0
    owned: int = 0
    backoff: int = 0


class Owner(NamedTuple):
    """A durable reader of a group: see owner.py.

    `released`: its lease ended and what it held is in the retry topic (or, in an exclusive group, just unattended).
    """

    owner_id: int
    group_id: int
    key: bytes  # hash16 of its name
    name: str
    generation: int
    lease_until_ms: int
    acked_epoch: int
    last_seen_ms: int
    released: bool


class Token(NamedTuple):
    """A sealed pop of an owner.

    `ck_id` 0: the set is empty, and stays so. `end`: there was nothing more for this epoch when it was sealed.
    """

    owner_id: int
    epoch: int
    part: int
    chunk: int
    ck_id: int
    members: int
    end: bool


class Counters(NamedTuple):
    """Numbers that only grow."""

    position: int = 0  # of the next record
    ck_id: int = 1
    rseq: int = 1
    entity: int = 1  # topics, groups, owners
    saved_ms: int = 0
    sched_id: int = 1  # delayed messages
    txn_id: int = 1  # half messages


class Terms(NamedTuple):
    """What the assignment of a group in a topic depends on, beside the clients."""

    queues: int
    mode: str  # POP or PULL
    share_number: int  # of the group in this topic, else of the group
