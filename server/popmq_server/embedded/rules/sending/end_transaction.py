"""EndTransaction: commits or rolls back a half message once, however often it is requested.

    half exists      commit    → appended or scheduled, half removed, tdone put       one transaction
                     rollback  → half removed, tdone put
    tdone exists     the same decision → the first answer again;  the other one → TRANSACTION_ENDED
    neither          TRANSACTION_NOT_FOUND

The first of these ends it: the producer's request, its answer to a check, or the broker giving up. All run in the
writer, client commands before periodic maintenance, so a commit in the same commit batch as the give-up wins.
"""

from popmq_server.contract.commands import (
    End,
    Ended,
    EndTransaction,
    Place,
)
from popmq_server.embedded.rules.sending import (
    delay,
    transaction,
    unique,
)
from popmq_server.embedded.rules.sending.placing import Placing
from popmq_server.embedded.rules.sending.transaction import Half
from popmq_server.embedded.state.space import GROW, messages_bytes, value_bytes
from popmq_server.embedded.state.tx import Tx
from popmq_server.errors import Refused, invalid
from popmq_server.values.handles import TransactionId, read_transaction, transaction_text


def end(tx: Tx, command: EndTransaction) -> list[Ended | Refused]:
    """Ends each entry on its own, in order; the second occurrence of an id in a request is a repetition."""
    return [entry if isinstance(entry, Refused) else _end(tx, entry) for entry in command.ends]


def _end(tx: Tx, entry: End) -> Ended | Refused:
    txn = read_transaction(entry.transaction)
    if txn is None:
        return invalid(
            "this is not a valid transaction id",
            field="transaction_id",
            action="pass the transaction id unchanged, as Send or the check returned it",
        )
    half = transaction.find_half(tx, txn.topic_id, txn.txn_id)
    if half is None or half.nonce != txn.nonce:
        return _repeated(tx, txn, entry)
    if half.topic_id not in tx.state.topics:  # deleted, and not removed yet
        return _not_found(entry.transaction)
    if not entry.commit:
        ended = Ended(transaction.message_id_of(tx, half), Place())
        _rolled_back(tx, half, ended)
        return ended
    return _commit(tx, half)


def _repeated(tx: Tx, txn: TransactionId, entry: End) -> Ended | Refused:
    """The answer to a repeated end, while the first one is remembered."""
    known = transaction.ended(tx, txn)
    if known is None:
        return _not_found(entry.transaction)
    if known[0] != entry.commit:
        outcome = "committed" if known[0] else "rolled back"
        return Refused(
            "TRANSACTION_ENDED",
            f"the transaction of message {known[1].message_id!r} was {outcome}",
            field="transaction_id",
            action="end a transaction once: find out which process ended it the other way",
        )
    return known[1]


def _not_found(asked: str) -> Refused:
    return Refused(
        "TRANSACTION_NOT_FOUND",
        f"there is no transaction {asked}",
        field="transaction_id",
        action="if it was given up, redrive it from TRANS_CHECK_MAX_TIME_TOPIC to commit it",
    )


def _rolled_back(tx: Tx, half: Half, ended: Ended) -> None:
    """Removes the half message; in topics with unique ids its id can be used again."""
    transaction.remove(tx, half)
    transaction.remember(tx, half, False, ended)
    topic = tx.state.topics[half.topic_id]
    unique.forget(tx, topic, ended.message_id, transaction_text(half.transaction))


def _commit(tx: Tx, half: Half) -> Ended | Refused:
    """Appends to a queue, or to `sched` if a delay remains: a delay counts from the commit."""
    topic = tx.state.topics[half.topic_id]
    message = transaction.message_of(tx, half)
    if message is None:
        transaction.set_aside(tx, half)
        return _not_found(transaction_text(half.transaction))
    if not tx.room.has(GROW, messages_bytes([value_bytes(len(message.data))])):
        return tx.room.refusal()
    transaction.remove(tx, half)
    place = delay.keep(tx, topic, message) or Placing(tx, topic).make_visible([(0, message)])[0]
    ended = Ended(message.message_id, place)
    transaction.remember(tx, half, True, ended)
    unique.Ids(tx, topic).move(message, place, transaction_text(half.transaction))
    return ended
