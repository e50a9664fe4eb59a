"""Read-only queries: one class for each, which names the type of its answer.

    Topics(Query[list[TopicNumbers]])        ask(Topics("orders")) → list[TopicNumbers]

Queries run between the commands (LANE_POP), so each answer shows one consistent state. An empty name means all.

A Listing may have any number of rows; `ask` answers with up to `rows_max` of them (0 = all), and `Rows.after` is the
`after` of the next page. An engine may collect them in pieces, with other commands in between, so that a long list does
not delay them; each piece shows one consistent state (loop/in_pieces.py).
"""

from dataclasses import KW_ONLY, replace
from typing import Self

from popmq_server.contract.capabilities import (
    BROWSE,
    LIST_DELAYED,
    LIST_LEASES,
    LIST_TRANSACTIONS,
    MESSAGE_GROUPS,
    OWNERS,
    SCHEDULES,
)
from popmq_server.contract.commands.listed import Listed
from popmq_server.contract.commands.numbers import (
    ClusterBrokers,
    CountedRows,
    DelayedMessage,
    GroupNumbers,
    HalfMessage,
    LeasePage,
    MessageGroupNumbers,
    OwnerNumbers,
    Page,
    R,
    Rows,
    ScheduleRow,
    StoreNumbers,
    TopicNumbers,
)
from popmq_server.contract.operations import Query
from popmq_server.contract.rights import (
    ADMIN,
    KNOWN,
    Caller,
    Needs,
    covers,
    describes,
    looks,
    named_group,
    receives,
    receives_from,
    sent_to,
)
from popmq_server.values.reach import EVERYWHERE, Reach
from popmq_server.values.records import Group, Subscription


class Listing(Query[Rows[R]]):
    """A query for a list of any length."""

    _: KW_ONLY
    after: str = ""
    rows_max: int = 0


class Topics(Listing[TopicNumbers], Listed["Topics"]):
    """All topics, sorted by name, or one topic or retry topic."""

    name: str = ""

    def needs(self) -> Needs:
        return describes(self.name) if self.name else KNOWN

    def shown(self, answer: Rows[TopicNumbers], caller: Caller) -> Rows[TopicNumbers]:
        """The rows that it could have asked for by name."""
        return Rows((row for row in answer if covers(caller, describes(row.topic.name))), answer.after)


class Groups(Listing[GroupNumbers], Listed["Groups"]):
    """Every group in every topic that it has named, by topic, limited to the requested topic and group.

    With both names it is one row, of zeros until the group names the topic.
    """

    topic: str = ""
    group: str = ""

    def needs(self) -> Needs:
        return (
            *(describes(self.topic) if self.topic else KNOWN),
            *(receives(self.topic, self.group, or_admin=True) if self.group else ()),
        )

    def shown(self, answer: Rows[GroupNumbers], caller: Caller) -> Rows[GroupNumbers]:
        """The rows that it could have asked for by name."""
        return Rows(
            (row for row in answer if covers(caller, receives(row.topic, row.group, or_admin=True))), answer.after
        )


class GroupSettings(Listing[Group], Listed["GroupSettings"]):
    """The settings of all groups, sorted by name, or of one."""

    name: str = ""

    def needs(self) -> Needs:
        return receives_from(self.name, or_admin=True) if self.name else KNOWN

    def shown(self, answer: Rows[Group], caller: Caller) -> Rows[Group]:
        """The rows that it could have asked for by name."""
        return Rows((row for row in answer if covers(caller, receives_from(row.name, or_admin=True))), answer.after)


class Subscriptions(Listing[tuple[str, Subscription]], Listed["Subscriptions"]):
    """(topic name, subscription) of each topic that a group has named, sorted by name."""

    group: str = ""

    def needs(self) -> Needs:
        return named_group(self.group)


class HeldBy(Query[dict[tuple[str, str], int] | None], Listed["HeldBy"], entries="clients"):
    """The number of messages leased to each of these (group, client), which must not be too many for one command.

    None: the engine does not know it.
    """

    clients: tuple[tuple[str, str], ...]

    def needs(self) -> Needs:
        return tuple(need for group, _ in self.clients for need in receives_from(group, or_admin=True))


class SessionHandle(Query[str], Listed["SessionHandle"]):
    """The handle of the message with this id that the client holds under a session lease; "" if it holds none.

    A search through the leases of the client, for a client that knows a message only by its id.
    """

    client: str
    group: str
    message_id: str

    def needs(self) -> Needs:
        return receives_from(self.group)  # of the caller's client: leases.holder


class Leases(Query[LeasePage], Listed["Leases"], capability=LIST_LEASES):
    """The list of leases, soonest deadline first: of those topics and groups that `reach` covers.

    `leases_max`: rows of a page at most.
    """

    topic: str
    group: str
    leases_max: int
    after: str = ""
    reach: Reach = EVERYWHERE

    def needs(self) -> Needs:
        return receives(self.topic, self.group, or_admin=True) if self.topic or self.group else ADMIN

    def narrowed(self, caller: Caller) -> Self:
        return replace(self, reach=caller.reach_or_admin())


class Owners(Listing[OwnerNumbers], Listed["Owners"], capability=OWNERS):
    """The owners of one group or all, by group; in a group in no order that means anything. `reach`: of those owners
    only all of whose topics it covers.
    """

    group: str = ""
    reach: Reach = EVERYWHERE

    def needs(self) -> Needs:
        return named_group(self.group)

    def narrowed(self, caller: Caller) -> Self:
        return replace(self, reach=caller.reach_or_admin())


class MessageGroups(Listing[MessageGroupNumbers], Listed["MessageGroups"], capability=MESSAGE_GROUPS):
    """Message groups of a group in a topic: stopped ones, then those with waiting messages, then those that are only
    leased. One with several leases may come twice. `rows_max` must be set.
    """

    topic: str = ""
    group: str = ""
    stopped_only: bool = False

    def needs(self) -> Needs:
        return receives(self.topic, self.group, or_admin=True)


class Delayed(Query[CountedRows[DelayedMessage]], Listed["Delayed"], capability=LIST_DELAYED):
    """Delayed messages due before `until_ms` (0 = no bound), soonest first; at most `count` rows. `previews`: with
    what they contain; `bytes_max`: with the messages themselves, until they have so many bytes, 0 = without.
    `message_id`, `key`: only those that have it; "" = all.
    """

    topic: str
    until_ms: int
    count: int
    after: str = ""
    previews: bool = True
    bytes_max: int = 0
    message_id: str = ""
    key: str = ""

    def needs(self) -> Needs:
        return sent_to(self.topic)

    def narrowed(self, caller: Caller) -> Self:
        """Messages are shown to those who may read them."""
        if covers(caller, looks(self.topic, "")):
            return self
        return replace(self, previews=False, bytes_max=0)


class Transactions(Query[CountedRows[HalfMessage]], Listed["Transactions"], capability=LIST_TRANSACTIONS):
    """Open half messages, topic by topic, in each oldest first; fields as of Delayed."""

    topic: str
    count: int
    after: str = ""
    previews: bool = True

    def needs(self) -> Needs:
        return sent_to(self.topic)

    def narrowed(self, caller: Caller) -> Self:
        """Messages are shown to those who may read them."""
        return replace(self, previews=covers(caller, looks(self.topic, "")))


class Schedules(Listing[ScheduleRow], Listed["Schedules"], capability=SCHEDULES):
    """All schedules, sorted by name, or one. `upcoming`: how many of their next occurrences are listed."""

    name: str = ""
    upcoming: int = 0

    def needs(self) -> Needs:
        return ADMIN


class Browse(Query[Page], Listed["Browse"], capability=BROWSE):
    """Messages of a queue, or of a retry topic, from an offset on. Returns one message even over `bytes_max`.

    `rest_bytes`: as that of Pull.
    """

    topic: str
    queue: int
    offset: int
    messages_max: int
    bytes_max: int
    rest_bytes: int = 0

    def needs(self) -> Needs:
        return looks(self.topic, "")


class StoreSize(Query[StoreNumbers], Listed["StoreSize"]):
    """The size of the store, and its free space."""

    def needs(self) -> Needs:
        return KNOWN


class Brokers(Query[ClusterBrokers], Listed["Brokers"]):
    """The brokers in which a gateway keeps the messages; none of an engine that keeps them itself."""

    def needs(self) -> Needs:
        return ADMIN
