"""Commands on topics and groups: see topic_lifecycle.py. All times are ms."""

from typing import Any, NamedTuple

from popmq_server.contract.capabilities import PURGE
from popmq_server.contract.operations import LANE_ACK, Command, Listed
from popmq_server.contract.rights import ADMIN, Needs
from popmq_server.values.records import IN_FLIGHT_MAX, SUBSCRIPTION_EXPIRY_MS, Group, Topic


class CreatedTopic(NamedTuple):
    """`existed`: the topic was there before, with these settings."""

    topic: Topic
    existed: bool


class CreatedGroup(NamedTuple):
    """`existed`: the group was there before, with these settings."""

    group: Group
    existed: bool


class CreateTopic(Command[CreatedTopic], Listed["CreateTopic"], lane=LANE_ACK, needs_room=True):
    """Creates a topic. Fields are those of records.Topic; retention: `by_age`, `keep_ms`, `bytes_max`."""

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

    def needs(self) -> Needs:
        return ADMIN


class UpdateTopic(Command[Topic], Listed["UpdateTopic"], lane=LANE_ACK):
    """Changes settings. `queues` 0 and `retention` None: unchanged; `retention` is (by age, keep ms).

    `changes`: new values of other fields of records.Topic that may change. `type`: the type that the topic must have,
    "" = any: it cannot change.
    """

    name: str
    queues: int
    retention: tuple[bool, int] | None
    changes: tuple[tuple[str, int | str], ...] = ()
    type: str = ""

    def needs(self) -> Needs:
        return ADMIN


class DeleteTopic(Command[None], Listed["DeleteTopic"], lane=LANE_ACK):
    """Deletes a topic with its messages."""

    name: str

    def needs(self) -> Needs:
        return ADMIN


class CreateGroup(Command[CreatedGroup], Listed["CreateGroup"], lane=LANE_ACK, needs_room=True):
    """Creates a group.

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

    def needs(self) -> Needs:
        return ADMIN


class UpdateGroup(Command[Group], Listed["UpdateGroup"], lane=LANE_ACK):
    """Changes settings; `changes` are fields of records.Group."""

    name: str
    changes: dict[str, Any]  # values of several types

    def needs(self) -> Needs:
        return ADMIN


class DeleteGroup(Command[None], Listed["DeleteGroup"], lane=LANE_ACK):
    """Deletes a group with its dead letters."""

    name: str

    def needs(self) -> Needs:
        return ADMIN


class PurgeTopic(Command[int], Listed["PurgeTopic"], lane=LANE_ACK, capability=PURGE):
    """Drops all messages of a topic → their number: those readable by position, the delayed and the half ones."""

    name: str

    def needs(self) -> Needs:
        return ADMIN
