"""Which rights each command and query needs: the tables of authorization.py.

NEEDS     a command      one without a row is refused: no key suffices
ASKING    a query        likewise; apart, so that a query cannot be run as a command, which does not filter rows
ROWS      a row of a list
"""

from collections.abc import Callable
from typing import Any

from popmq_server.contract import commands
from popmq_server.contract.commands import (
    Available,
    CloneOffsets,
    EndTransaction,
    Pop,
    Pull,
    ResetOffsets,
    SetConsumeMode,
    queries,
)
from popmq_server.contract.commands.queries import Query
from popmq_server.protocols.access.access_keys import Need
from popmq_server.values.message import RETRY_PREFIX

Needs = tuple[Need, ...]

ADMIN = (Need("admin"),)
#: Any key suffices.
KNOWN = (Need("known"),)
#: No key suffices: no grant covers it, not even `*`.
NOBODY = (Need("nobody"),)


# Helpers for the tables below. `or_admin`: calls that operators make for a client, or that only read.


def sends(topic: str, or_admin: bool = False) -> Needs:
    return (Need("send", topic, "", or_admin),)


def receives(topic: str, group: str, or_admin: bool = False) -> Needs:
    """Reading a topic; a retry topic belongs to the topic and group in its name."""
    if not topic.startswith(RETRY_PREFIX):
        return (Need("receive", topic, group, or_admin),)
    its_group, _, its_topic = topic.removeprefix(RETRY_PREFIX).partition("+")
    own = Need("receive", its_topic, its_group, or_admin)
    return (own, Need("receive", its_topic, group, or_admin)) if group else (own,)


def looks(topic: str, group: str) -> Needs:
    """Reading messages; without a topic, those of all topics."""
    return receives(topic, group, or_admin=True) if topic else ADMIN


def describes(topic: str) -> Needs:
    """A topic's existence and settings: any right on the topic suffices."""
    return looks(topic, "") if topic.startswith(RETRY_PREFIX) else (Need("describe", topic),)


def _of_group(command: Any) -> Needs:
    """Commands with handles, which determine the topic, or with an owner or a lease, whose topics the engine compares
    with what the key may receive (narrowing.py).
    """
    return receives("", command.group)


def of_pair(command: Any) -> Needs:
    return receives(command.topic, command.group)


def of_pair_or_admin(command: Any) -> Needs:
    return receives(command.topic, command.group, or_admin=True)


def _of_stages(command: Any) -> Needs:
    """Each stage is found by its topic too, so the topics of the request are those of the messages."""
    return tuple(need for topic in {name.topic for name in command.stages} for need in sends(topic)) or sends("")


def _admin(_: Any) -> Needs:
    return ADMIN


def nobody(_: Any) -> Needs:
    """A command or query that is missing in the tables."""
    return NOBODY


#: What each command needs. Commands under _admin that no protocol sends (Sweep, Listen, …) are the broker's own.
NEEDS: dict[type, Callable[[Any], Needs]] = {
    commands.Send: lambda command: sends(command.topic),
    commands.Stage: lambda command: sends(command.topic),
    commands.CommitBatch: lambda command: _of_stages(command),
    commands.DropStages: lambda command: _of_stages(command),
    commands.Recall: lambda command: sends(command.topic, or_admin=True),
    EndTransaction: lambda _: sends("", or_admin=True),  # and send on the topics of its transactions: Guarded.execute
    Pop: of_pair,
    Pull: of_pair,
    commands.Ack: _of_group,
    commands.ChangeInvisibleTime: _of_group,
    commands.AttachOwner: of_pair,
    commands.RenewOwner: _of_group,
    commands.AckUpTo: _of_group,
    commands.EndLease: lambda command: receives("", command.group, or_admin=True),
    commands.ReleaseOwner: lambda command: receives("", command.group, or_admin=True),
    Available: of_pair,
    commands.SetFilter: of_pair_or_admin,
    SetConsumeMode: of_pair_or_admin,
    commands.UpdateOffsets: of_pair,
    commands.QueryOffsets: of_pair_or_admin,
    commands.SendBack: of_pair,
    commands.SyncLite: of_pair,
    commands.RenewSession: lambda _: KNOWN,  # the holder's name contains the access key: leases.holder
    commands.ReleaseSession: lambda _: KNOWN,
} | dict.fromkeys(
    (
        commands.SetMaxSize,
        commands.CreateTopic,
        commands.UpdateTopic,
        commands.DeleteTopic,
        commands.PurgeTopic,
        commands.CreateGroup,
        commands.UpdateGroup,
        commands.DeleteGroup,
        commands.CreateSchedule,
        commands.DeleteSchedule,
        commands.PauseSchedule,
        commands.RunSchedule,
        ResetOffsets,
        CloneOffsets,
        commands.ResumeMessageGroup,
        commands.Sweep,
        commands.CountChecks,
        commands.Attend,
        commands.Listen,
        *(commands.PeekPiece, commands.LookUpPiece, commands.Trace, commands.WhyPiece),
        *(commands.RedrivePiece, commands.DiscardPiece, commands.FindDeadLetters),
    ),
    _admin,
)


def _group(group: str) -> Needs:
    return receives("", group, or_admin=True)


def _sent_to(topic: str) -> Needs:
    """Messages that are sent and not visible yet; those of all topics are for admin."""
    return sends(topic, or_admin=True) if topic else ADMIN


def named_group(group: str) -> Needs:
    """Numbers of one group; lists of all groups that ROWS does not filter are for admin."""
    return _group(group) if group else ADMIN


ASKING: dict[type[Query[Any]], Callable[[Any], Needs]] = {
    queries.Topics: lambda query: describes(query.name) if query.name else KNOWN,
    queries.TopicNames: _admin,  # the broker's own: Guarded.topics_of
    queries.Groups: lambda query: (
        *(describes(query.topic) if query.topic else KNOWN),
        *(receives(query.topic, query.group, or_admin=True) if query.group else ()),
    ),
    queries.GroupSettings: lambda query: _group(query.name) if query.name else KNOWN,
    queries.TermsOf: lambda query: tuple(need for topic in query.topics for need in receives(topic, query.group)),
    queries.HeldBy: lambda query: tuple(need for group, _ in query.clients for need in _group(group)),
    queries.SessionHandle: lambda query: receives("", query.group),  # of the caller's client: leases.holder
    queries.Subscriptions: lambda query: named_group(query.group),
    queries.Leases: lambda query: of_pair_or_admin(query) if query.topic or query.group else ADMIN,
    queries.Owners: lambda query: named_group(query.group),
    queries.MessageGroups: of_pair_or_admin,
    queries.Delayed: lambda query: _sent_to(query.topic),
    queries.Transactions: lambda query: _sent_to(query.topic),
    queries.Schedules: _admin,
    queries.Browse: lambda query: looks(query.topic, ""),
    queries.Store: lambda _: KNOWN,
}

#: In these lists a key sees the rows that it could have asked for by name.
ROWS: dict[type[Query[Any]], Callable[[Any], Needs]] = {
    queries.Topics: lambda row: describes(row.topic.name),
    queries.Groups: lambda row: receives(row.topic, row.group, or_admin=True),
    queries.GroupSettings: lambda row: _group(row.name),
}
