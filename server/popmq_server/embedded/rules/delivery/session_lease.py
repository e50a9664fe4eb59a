"""Session leases: leases that last as long as the broker hears of their client (Pop.session).

    Pop.session ──▶ CheckPoint with the session bit, under the client's name     due = pop + invisible time, or lease
                      │
    the broker hears of it        RenewSession     due = now + lease, at most pop + cap; never sooner than before
    one member is extended        lease.change     split off, also the last one: it has its own deadline from here on
    the client ends               ReleaseSession   due = now
    the broker was down           `after_start`    due = start + lease: clients need a while to be heard of again
    due                           revive           like any expired lease: the attempt counts

Clients of apache.rocketmq.v2 never renew the leases of messages that their listeners process; they expect the broker to
do it while they live. A renewal moves only the members that have no deadline of their own. It writes one small key for
each CheckPoint; a client holds some hundreds at most, since it stops popping when its cache is full. The leases of a
client with more are renewed in pieces, so that other commands run in between.

See docs/decisions/0017-session-leases.md.
"""

from popmq_server.contract.commands import ReleaseSession, RenewSession, queries
from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.operations import NextRelease, NextRenewal, SessionPiece
from popmq_server.embedded.rules.topics import readers
from popmq_server.embedded.rules.topics.log import Log, located
from popmq_server.embedded.state import leases
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import CheckPoint, Lease
from popmq_server.values import fields
from popmq_server.values.handles import make_handle

#: A session lease ends this long after the client was heard of last; then other clients get the message.
SESSION_LEASE_MS = 60_000
#: A listener that takes longer than this for one message counts as stuck, even if its client still makes calls.
SESSION_CAP_MS = 3 * 3_600_000
#: CheckPoints that one command renews or releases at most: some 10 ms.
PIECE = 1000
#: The most bytes of messages that a search for one message reads: some 10 ms.
READ_BYTES_MAX = 32 << 20


def renew(tx: Tx, command: RenewSession | NextRenewal) -> SessionPiece:
    """Moves the deadlines of one piece: (how many, the last CheckPoint of the piece or 0)."""
    held, after = _piece(tx, command.client, command.after if isinstance(command, NextRenewal) else 0)
    moved = 0
    for ck_id in held:
        ck, part = _checkpoint(tx, command.client, ck_id), tx.state.leases.get((ck_id, 0))
        due_ms = min(tx.now_ms + SESSION_LEASE_MS, ck.popped_ms + SESSION_CAP_MS)
        if part is not None and tx.now_ms < part.due_ms < due_ms:  # an expired lease is not renewed
            leases.set_part(tx, ck, 0, part.renewed(tx.now_ms, due_ms))
            moved += 1
    return SessionPiece(moved, after)


def release(tx: Tx, command: ReleaseSession | NextRelease) -> SessionPiece:
    """Sets the deadlines of one piece to now, for the revive. Its lite topics become available to other clients."""
    begun = command.after if isinstance(command, NextRelease) else 0
    if not begun:
        tx.state.watches.drop_client(command.client)
    held, after = _piece(tx, command.client, begun)
    moved = 0
    for ck_id in held:
        part = tx.state.leases.get((ck_id, 0))
        if part is not None and part.due_ms > tx.now_ms:
            ck = _checkpoint(tx, command.client, ck_id)
            leases.set_part(tx, ck, 0, ended(tx, ck, 0, part))
            moved += 1
    return SessionPiece(moved, after)


def _checkpoint(tx: Tx, client: str, ck_id: int) -> CheckPoint:
    """A CheckPoint that is bound to a client's session."""
    ck = tx.state.ck.get(ck_id)
    if ck is None or ck.client != client or not ck.session:
        broken("session_has_its_leases", checkpoint=ck_id, found=ck is not None)
    return ck


def ended(tx: Tx, ck: CheckPoint, sub: int, part: Lease) -> Lease:
    """A part that a client or an operator ends now; soon after a start as a renewed one, which ends all the same."""
    due = part._replace(due_ms=tx.now_ms)
    return part.renewed(tx.now_ms, tx.now_ms) if after_start(tx, ck, sub, due) else due


def after_start(tx: Tx, ck: CheckPoint, sub: int, part: Lease) -> int:
    """The deadline of a due lease whose client could not be heard of while the broker was down. 0: it ends.

    No lease lasts longer than the cap.
    """
    started_ms = tx.state.started_ms
    if sub or not ck.session or max(ck.popped_ms, part.renewed_ms) >= started_ms:
        return 0
    due_ms = min(started_ms + SESSION_LEASE_MS, ck.popped_ms + SESSION_CAP_MS)
    return due_ms if due_ms > max(part.due_ms, tx.now_ms) else 0


def handle_of(tx: Tx, query: queries.SessionHandle) -> str:
    """Reads the messages that a client holds in a group, the oldest leases first, until one has the id."""
    group, log, left = readers.group(tx, query.group), Log(tx.kv), READ_BYTES_MAX
    for ck_id in leases.of_session(tx.state, query.client, 0, PIECE):
        ck = tx.state.ck[ck_id]
        if group is None or ck.group_id != group.group_id:
            continue
        bits = leases.undone(tx, ck)
        for member, _, _, position, size in located(tx.kv, ck, bits):
            left -= size
            read = log.fetch(ck.topic_id, position, size) if left >= 0 else None
            if read is not None and fields.text(read[1], fields.MESSAGE_ID) == query.message_id:
                return make_handle(ck_id, member, ck.nonce)
    return ""


def _piece(tx: Tx, client: str, after: int) -> tuple[list[int], int]:
    """The next CheckPoints of a client after `after`; the last of these, or 0 when no more follow."""
    piece = leases.of_session(tx.state, client, after, PIECE + 1)
    return piece[:PIECE], piece[PIECE - 1] if len(piece) > PIECE else 0
