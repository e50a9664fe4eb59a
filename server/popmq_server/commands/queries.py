"""Read-only queries: one class for each, which names the type of its answer.

    Topics(Query[list[TopicNumbers]])        ask(Topics("orders")) → list[TopicNumbers]

Queries run between the commands (LANE_POP), so each answer shows one consistent state. An empty name means all.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from popmq_server.commands.numbers import (
    DelayedMessage,
    GroupNumbers,
    HalfMessage,
    LeaseNumbers,
    MessageGroupNumbers,
    OwnerNumbers,
    Page,
    StoreUse,
    TopicNumbers,
)
from popmq_server.model.records import Group, Subscription, Terms

A = TypeVar("A")


class Query(Generic[A]):
    """A query whose answer is an A: type checkers derive the type of the answer from it."""


@dataclass(frozen=True)
class Topics(Query[list[TopicNumbers]]):
    """All topics, sorted by name, or one topic or retry topic."""

    name: str = ""


@dataclass(frozen=True)
class Groups(Query[list[GroupNumbers]]):
    """Every group in every topic that it has named, limited to the requested topic and group."""

    topic: str = ""
    group: str = ""


@dataclass(frozen=True)
class GroupSettings(Query[list[Group]]):
    """The settings of all groups, sorted by name, or of one."""

    name: str = ""


@dataclass(frozen=True)
class Subscriptions(Query[list[tuple[str, Subscription]]]):
    """(topic name, subscription) of each topic that a group has named, sorted by name."""

    group: str


@dataclass(frozen=True)
class TermsOf(Query[dict[str, Terms]]):
    """The queue count, mode and share number of a group in each of these topics; missing topics are left out."""

    group: str
    topics: tuple[str, ...]


@dataclass(frozen=True)
class HeldBy(Query[dict[tuple[str, str], int]]):
    """The number of messages leased to each client, by (group, client), of one group or all."""

    group: str = ""


@dataclass(frozen=True)
class Leases(Query[tuple[list[LeaseNumbers], int, bytes]]):
    """One piece of the list of leases, soonest deadline first.

    → (at most `leases_max` rows, the number of leases that the piece found, `after` of the next piece or b"" = no more)
    """

    topic: str
    group: str
    leases_max: int
    after: bytes = b""


@dataclass(frozen=True)
class Owners(Query[list[OwnerNumbers]]):
    """The owners of one group or all."""

    group: str = ""


@dataclass(frozen=True)
class MessageGroups(Query[tuple[list[MessageGroupNumbers], int, int]]):
    """Message groups, stopped first → (rows, the number of waiting messages, of stopped message groups)."""

    topic: str
    group: str
    groups_max: int
    stopped_only: bool = False


@dataclass(frozen=True)
class Delayed(Query[tuple[list[DelayedMessage], int]]):
    """Delayed messages due before `until_ms` (0 = no bound), soonest first → (rows, the total number)."""

    topic: str
    until_ms: int
    count: int


@dataclass(frozen=True)
class Transactions(Query[tuple[list[HalfMessage], int]]):
    """Open half messages, oldest first → (rows, the total number)."""

    topic: str
    count: int


@dataclass(frozen=True)
class Browse(Query[Page]):
    """Messages of a queue, or of a retry topic, from an offset on. Returns one message even over `bytes_max`."""

    topic: str
    queue: int
    offset: int
    messages_max: int
    bytes_max: int


@dataclass(frozen=True)
class Store(Query[StoreUse]):
    """How much of the store is used."""
