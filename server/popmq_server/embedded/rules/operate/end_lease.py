"""EndLease: ends one lease before its deadline, by an operator who knows that its client will not come back.

The deadline becomes now, and the revive does the rest as it does at every deadline: the messages that are not done go
to the retry topic, or to the dead-letter topic after their last attempt, in bounded pieces; the handles of the lease
lapse. Messages in backoff are such a lease too: they become visible at once.
"""

from popmq_server.contract.commands import EndLease
from popmq_server.embedded.rules.delivery import session_lease
from popmq_server.embedded.rules.topics import readers
from popmq_server.embedded.state import leases
from popmq_server.embedded.state.tx import Tx
from popmq_server.errors import Refused, group_not_found, invalid
from popmq_server.values.reach import covers


def end(tx: Tx, command: EndLease) -> int:
    """Sets the deadline of every part of the lease to now; returns how many messages are not done."""
    group = readers.group(tx, command.group)
    if group is None:
        raise group_not_found(command.group)
    ck = tx.state.ck.get(int(command.lease_id)) if command.lease_id.isdecimal() else None
    if ck is None or ck.group_id != group.group_id:
        raise Refused(
            "HANDLE_LAPSED",
            f"group {command.group!r} has no lease {command.lease_id}: it has ended or never existed",
            field="lease_id",
            action="list the leases again",
        )
    if not covers(command.reach, tx.state.name_of(ck.topic_id), group.name):
        raise Refused(
            "PERMISSION_DENIED",
            f"the access key does not allow to receive the topic of lease {command.lease_id}",
            field="lease_id",
            action="end it with a key that may receive its topic, or with one that has admin",
        )
    if ck.owner_id:
        raise invalid(
            "an owner holds this lease",
            field="lease_id",
            action="release the owner: `popmq owners release`, or client.release_owner",
        )
    parts = leases.parts(tx, ck)
    for sub, part in parts:
        if part.due_ms > tx.now_ms:
            leases.set_part(tx, ck, sub, session_lease.ended(tx, ck, sub, part))
    return sum(part.undone.bit_count() for _, part in parts)
