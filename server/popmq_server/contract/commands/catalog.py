"""Commands on topics and groups: see topic_lifecycle.py. All times are ms."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from popmq_server.contract.capabilities import (
    EXCLUSIVE_OWNER,
    FAIR_KEYS,
    IN_FLIGHT_MAX,
    LITE,
    PURGE,
    QUOTAS,
    RESULTS,
    RETENTION,
    SNOOZE,
    STOP_ON_FAILURE,
    SUBSCRIPTION_EXPIRY,
    TTL,
    UNIQUE_IDS,
    Capability,
)
from popmq_server.contract.commands.listed import Listed
from popmq_server.contract.operations import LANE_ACK, Command
from popmq_server.contract.rights import ADMIN, Needs
from popmq_server.values.records import FairKeys, Group, Topic


class CreatedTopic(NamedTuple):
    """`existed`: the topic was there before, with these settings."""

    topic: Topic
    existed: bool


class CreatedGroup(NamedTuple):
    """`existed`: the group was there before, with these settings."""

    group: Group
    existed: bool


#: Settings that an engine may lack. One is asked for unless it is None, False or 0, which such an engine has anyway.
BY_SETTING = {
    "unique_ids_ms": UNIQUE_IDS,
    **dict.fromkeys(("send_messages_per_s", "send_bytes_per_s", "message_bytes_max", "pop_messages_per_s"), QUOTAS),
    **dict.fromkeys(("by_age", "keep_ms", "bytes_max"), RETENTION),
    "in_flight_max": IN_FLIGHT_MAX,
    "stop_on_failure": STOP_ON_FAILURE,
    "exclusive_owner": EXCLUSIVE_OWNER,
    "subscription_expiry_ms": SUBSCRIPTION_EXPIRY,
    "snoozes_max": SNOOZE,
    "dead_letter_expired": TTL,
    "results_keep_ms": RESULTS,
    "fair_keys": FAIR_KEYS,
}


def _asked(settings: Iterable[tuple[str, object]]) -> tuple[Capability, ...]:
    return tuple(BY_SETTING[name] for name, value in settings if value and name in BY_SETTING)


class CreateTopic(Command[CreatedTopic], Listed["CreateTopic"], lane=LANE_ACK, needs_room=True):
    """Creates a topic. Fields are those of records.Topic; retention: `by_age`, `keep_ms`, `bytes_max`.

    `keep_ms`: None: the request names no retention, and the engine has its own default.
    """

    name: str
    queues: int
    by_age: bool
    keep_ms: int | None
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

    def needed(self) -> tuple[Capability, ...]:
        lite = (LITE,) if self.type == "LITE" else ()
        return lite + _asked(vars(self).items())


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

    def needed(self) -> tuple[Capability, ...]:
        retention = (RETENTION,) if self.retention else ()
        return retention + _asked(self.changes)


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
    `subscription_expiry_ms`: idle time after which its subscription of a topic is removed; 0 = never. `snoozes_max`:
    how often one message may be snoozed. `dead_letter_expired`: a message whose ttl is over becomes a dead letter.
    `results_keep_ms`: how long results of its messages are kept; 0 = it keeps none. `fair_keys`: its turns by key;
    None = it takes none. `in_flight_max`, `subscription_expiry_ms`, `snoozes_max` None: the request names none, and the
    engine has its own default.
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
    in_flight_max: int | None = None
    stop_on_failure: bool = False
    lite_exclusive: bool = False
    consume_enable: bool = True
    subscription_expiry_ms: int | None = None
    snoozes_max: int | None = None
    dead_letter_expired: bool = False
    results_keep_ms: int = 0
    fair_keys: FairKeys | None = None

    def needs(self) -> Needs:
        return ADMIN

    def needed(self) -> tuple[Capability, ...]:
        return _asked(vars(self).items())


class UpdateGroup(Command[Group], Listed["UpdateGroup"], lane=LANE_ACK):
    """Changes settings; `changes` are fields of records.Group, None as in CreateGroup."""

    name: str
    changes: dict[str, Any]  # values of several types

    def needs(self) -> Needs:
        return ADMIN

    def needed(self) -> tuple[Capability, ...]:
        return _asked(self.changes.items())


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
