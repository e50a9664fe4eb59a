"""Read-only queries: one class for each, which names the type of its answer.

    Topics(Query[list[TopicNumbers]])        ask(Topics("orders")) → list[TopicNumbers]

Queries run between the commands (LANE_POP), so each answer shows one consistent state. An empty name means all.

A Listing may have any number of rows; `ask` answers with up to `rows_max` of them (0 = all), and `Rows.after` is the
`after` of the next page. An engine may collect them in pieces, with other commands in between, so that a long list does
not delay them; each piece shows one consistent state (loop/in_pieces.py).
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from popmq_server.contract.commands.lanes import LANE_POP, LANES
from popmq_server.contract.commands.numbers import (
    DelayedMessage,
    GroupNumbers,
    HalfMessage,
    LeaseNumbers,
    MessageGroupNumbers,
    OwnerNumbers,
    Page,
    R,
    Rows,
    ScheduleRow,
    StoreUse,
    TopicNumbers,
)
from popmq_server.values.reach import EVERYWHERE, Reach
from popmq_server.values.records import Group, Subscription, Terms

A = TypeVar("A")


class Query(Generic[A]):
    """A query whose answer is an A: type checkers derive the type of the answer from it."""

    def __init_subclass__(cls) -> None:
        LANES[cls] = LANE_POP


@dataclass(frozen=True, kw_only=True)
class Listing(Query[Rows[R]]):
    """A query for a list of any length."""

    after: str = ""
    rows_max: int = 0


@dataclass(frozen=True)
class Topics(Listing[TopicNumbers]):
    """All topics, sorted by name, or one topic or retry topic."""

    name: str = ""


@dataclass(frozen=True)
class TopicNames(Query[dict[int, str]]):
    """Id → name of those of these topics that exist: for the engine's own use."""

    topic_ids: tuple[int, ...]


@dataclass(frozen=True)
class Groups(Listing[GroupNumbers]):
    """Every group in every topic that it has named, by topic, limited to the requested topic and group.

    With both names it is one row, of zeros until the group names the topic.
    """

    topic: str = ""
    group: str = ""


@dataclass(frozen=True)
class GroupSettings(Listing[Group]):
    """The settings of all groups, sorted by name, or of one."""

    name: str = ""


@dataclass(frozen=True)
class Subscriptions(Listing[tuple[str, Subscription]]):
    """(topic name, subscription) of each topic that a group has named, sorted by name."""

    group: str = ""


@dataclass(frozen=True)
class TermsOf(Query[dict[str, Terms]]):
    """The queue count, mode and share number of a group in each of these topics; missing topics are left out."""

    group: str
    topics: tuple[str, ...]


@dataclass(frozen=True)
class HeldBy(Query[dict[tuple[str, str], int]]):
    """The number of messages leased to each of these (group, client), which must not be too many for one command."""

    clients: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class SessionHandle(Query[str]):
    """The handle of the message with this id that the client holds under a session lease; "" if it holds none.

    A search through the leases of the client, for a client that knows a message only by its id.
    """

    client: str
    group: str
    message_id: str


@dataclass(frozen=True)
class Leases(Query[tuple[list[LeaseNumbers], int, str]]):
    """The list of leases, soonest deadline first: of those topics and groups that `reach` covers.

    → (at most `leases_max` rows; the total number, 0 after the first page; `after` of the next page, "" = no more)
    """

    topic: str
    group: str
    leases_max: int
    after: str = ""
    reach: Reach = EVERYWHERE


@dataclass(frozen=True)
class Owners(Listing[OwnerNumbers]):
    """The owners of one group or all, by group; in a group in no order that means anything. `reach`: of those owners
    only all of whose topics it covers.
    """

    group: str = ""
    reach: Reach = EVERYWHERE


@dataclass(frozen=True)
class MessageGroups(Listing[MessageGroupNumbers]):
    """Message groups of a group in a topic: stopped ones, then those with waiting messages, then those that are only
    leased. One with several leases may come twice. `rows_max` must be set.
    """

    topic: str = ""
    group: str = ""
    stopped_only: bool = False


@dataclass(frozen=True)
class Delayed(Query[tuple[Rows[DelayedMessage], int]]):
    """Delayed messages due before `until_ms` (0 = no bound), soonest first → (at most `count` rows; the total number, 0
    after the first page). `previews`: with what they contain.
    """

    topic: str
    until_ms: int
    count: int
    after: str = ""
    previews: bool = True


@dataclass(frozen=True)
class Transactions(Query[tuple[Rows[HalfMessage], int]]):
    """Open half messages, topic by topic, in each oldest first → (rows and the total number, as of Delayed)."""

    topic: str
    count: int
    after: str = ""
    previews: bool = True


@dataclass(frozen=True)
class Schedules(Listing[ScheduleRow]):
    """All schedules, sorted by name, or one. `upcoming`: how many of their next occurrences are listed."""

    name: str = ""
    upcoming: int = 0


@dataclass(frozen=True)
class Browse(Query[Page]):
    """Messages of a queue, or of a retry topic, from an offset on. Returns one message even over `bytes_max`.

    `rest_bytes`: as that of Pull.
    """

    topic: str
    queue: int
    offset: int
    messages_max: int
    bytes_max: int
    rest_bytes: int = 0


@dataclass(frozen=True)
class Store(Query[StoreUse]):
    """How much of the store is used."""
