"""Session leases: what a client got lasts as long as the client is heard of (Pop.session).

    Pop.session ──▶ CheckPoint with the session bit, under the client's name     due = pop + invisible time
                      │
    the client is heard of        RenewSession     due = now + lease, at most pop + cap; never sooner than it was
    one member gets a time        lease.change     split off, also the last one: its time is its own from here on
    the client ends               ReleaseSession   due = now
    due                           revive           as any lease that ran out: the attempt counts

Clients of apache.rocketmq.v2 never renew what their listeners work on; they expect the broker to do it while they
live. Only the part of a batch that nobody gave a time of its own is moved. A renewal is one small key for each
CheckPoint: a client holds some hundreds at most, since it stops to pop when its cache is full. Who holds more is served
in pieces, so that others need not wait.
"""

from popmq_server.commands import ReleaseSession, RenewSession
from popmq_server.state import session_ids
from popmq_server.state.tx import Tx

#: CheckPoints that one command looks at: some 10 ms.
PIECE = 1000


def renew(tx: Tx, command: RenewSession) -> tuple[int, int]:
    """Moves the deadlines of one piece: (how many, where to go on)."""
    held, after = _piece(tx, command.client, command.after)
    moved = 0
    for ck_id in held:
        ck, part = tx.state.ck[ck_id], tx.state.leases.get((ck_id, 0))
        due_ms = min(tx.now_ms + command.lease_ms, ck.popped_ms + command.cap_ms)
        if part is not None and tx.now_ms < part.due_ms < due_ms:  # what has ended stays ended
            tx.set_lease(ck, 0, part.renewed(tx.now_ms, due_ms))
            moved += 1
    return moved, after


def release(tx: Tx, command: ReleaseSession) -> tuple[int, int]:
    """Ends the leases of one piece; the revive, which comes next, takes it from there. Its lite topics are others'."""
    if not command.after:
        tx.state.watches.drop_client(command.client)
    held, after = _piece(tx, command.client, command.after)
    moved = 0
    for ck_id in held:
        part = tx.state.leases.get((ck_id, 0))
        if part is not None and part.due_ms > tx.now_ms:
            tx.set_lease(tx.state.ck[ck_id], 0, part._replace(due_ms=tx.now_ms))
            moved += 1
    return moved, after


def _piece(tx: Tx, client: str, after: int) -> tuple[list[int], int]:
    """Some CheckPoints of a client behind one of them, and the last of these, or 0 when there are no more."""
    piece = session_ids.behind(tx.state, client, after, PIECE + 1)
    return piece[:PIECE], piece[PIECE - 1] if len(piece) > PIECE else 0
