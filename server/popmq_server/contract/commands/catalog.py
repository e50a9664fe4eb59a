"""Commands on topics and groups: see topic_lifecycle.py. All times are ms."""

from typing import Any, NamedTuple

from popmq_server.contract.commands.lanes import LANE_ACK, command
from popmq_server.values.records import IN_FLIGHT_MAX, SUBSCRIPTION_EXPIRY_MS


@command(LANE_ACK, needs_room=True)
class CreateTopic(NamedTuple):
    """→ (Topic, whether it existed). Fields are those of records.Topic; retention: `by_age`, `keep_ms`, `bytes_max`."""

    name: str
    queues: int
    by_age: bool
    keep_ms: int
    type: str = "NORMAL"
    bytes_max: int = 0
    unique_ids_ms: int = 0
    send_messages_per_s: int = 0
    send_bytes_per_s: int = 0
    message_bytes_max: int = 0
    pop_messages_per_s: int = 0
    lite_topics_max: int = 0
    lite_ttl_ms: int = 0
    permission: str = "READ_WRITE"


@command(LANE_ACK)
class UpdateTopic(NamedTuple):
    """→ Topic. `queues` 0 and `retention` None: unchanged; `retention` is (by age, keep ms).

    `changes`: new values of other fields of records.Topic that may change. `type`: the type that the topic must have,
    "" = any: it cannot change.
    """

    name: str
    queues: int
    retention: tuple[bool, int] | None
    changes: tuple[tuple[str, int | str], ...] = ()
    type: str = ""


@command(LANE_ACK)
class DeleteTopic(NamedTuple):
    """→ None."""

    name: str


@command(LANE_ACK, needs_room=True)
class CreateGroup(NamedTuple):
    """→ (Group, whether it existed).

    `delays_ms`: backoff before attempt 2, 3, …, the last repeats. `share_number`: 0 = all members read every queue.
    `start_from`: EARLIEST, LATEST or TIMESTAMP (`start_ms`): where the group begins in a topic that it names first.
    `exclusive_owner`: other consumers do not pop what an owner's token holds after its lease. `fifo`: reported to
    clients. `in_flight_max`: leased messages in one queue. `stop_on_failure`: a message without attempts left stops its
    message group (FIFO) instead of going to the dead letter topic. `lite_exclusive`: only one client of the group reads
    a lite topic. `consume_enable`: if false, the group may not read.
    `subscription_expiry_ms`: idle time after which its subscription of a topic is removed; 0 = never.
    """

    name: str
    max_attempts: int
    delays_ms: tuple[int, ...]
    invisible_ms: int
    share_number: int
    start_from: str
    start_ms: int
    exclusive_owner: bool
    fifo: bool = False
    in_flight_max: int = IN_FLIGHT_MAX
    stop_on_failure: bool = False
    lite_exclusive: bool = False
    consume_enable: bool = True
    subscription_expiry_ms: int = SUBSCRIPTION_EXPIRY_MS


@command(LANE_ACK)
class UpdateGroup(NamedTuple):
    """→ Group. `changes` are fields of records.Group."""

    name: str
    changes: dict[str, Any]


@command(LANE_ACK)
class DeleteGroup(NamedTuple):
    """→ None."""

    name: str


@command(LANE_ACK)
class PurgeTopic(NamedTuple):
    """→ (the number of dropped messages: those readable by position, the delayed and the half ones, `after`).

    `after`: that of the last answer: the groups of the topic are moved in pieces, until it is 0.
    """

    name: str
    after: int = 0
