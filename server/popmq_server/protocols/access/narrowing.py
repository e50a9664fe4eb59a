"""What commands and queries tell the engine of the caller's access key, for what only the store can compare.

    Stage, CommitBatch, DropStages       the name of the key       a sink belongs to the key that used it first
    commands on owners, EndLease         what it may receive       the key must cover all topics of the owner or lease
    AttachOwner                          whether it names the group, so that no key creates any number of groups
    Leases, Owners                       the same                  they list those that it covers
    Delayed, Transactions                whether it may read       they show what messages contain

Without access keys nothing is changed, and the defaults of these fields allow everything.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from popmq_server.contract import commands
from popmq_server.contract.commands import Pop, queries
from popmq_server.protocols.access.access_keys import Key, Need
from popmq_server.protocols.access.needs import looks

_ADMIN = Need("admin")


def _of_sink(command: Any, key: Key) -> Any:
    return command._replace(access_key=key.name, any_sink=key.may(_ADMIN))


def _of_reader(command: Any, key: Key) -> Any:
    return command._replace(reach=key.reach)


def _of_attaching(command: Any, key: Key) -> Any:
    return command._replace(reach=key.reach, may_create=key.may_create(command.group))


def _of_reader_or_admin(command: Any, key: Key) -> Any:
    return command._replace(reach=key.reach_or_admin())


def of_token(command: Pop, key: Key) -> Pop:
    """A Pop; one with a token is of an owner."""
    return command if command.token is None else command._replace(token=command.token._replace(reach=key.reach))


def _of_list(query: Any, key: Key) -> Any:
    return replace(query, reach=key.reach_or_admin())


def _of_unseen(query: Any, key: Key) -> Any:
    return replace(query, previews=all(map(key.may, looks(query.topic, ""))))


#: The commands and queries that are changed before the engine gets them.
NARROWED: dict[type, Callable[[Any, Key], Any]] = {
    commands.Stage: _of_sink,
    commands.CommitBatch: _of_sink,
    commands.DropStages: _of_sink,
    commands.AttachOwner: _of_attaching,
    commands.RenewOwner: _of_reader,
    commands.AckUpTo: _of_reader,
    commands.ReleaseOwner: _of_reader_or_admin,
    commands.EndLease: _of_reader_or_admin,
    queries.Leases: _of_list,
    queries.Owners: _of_list,
    queries.Delayed: _of_unseen,
    queries.Transactions: _of_unseen,
}
