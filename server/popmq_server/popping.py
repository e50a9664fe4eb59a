"""Which way a Pop goes, and how many bytes of answers one group of commands makes.

An answer may have 16 MiB, and a thousand Pops may run in one group. Where those before it have had their share, a Pop
is told to ask again: it goes on in the next group, behind what others have asked meanwhile.
"""

from popmq_server import lite_pop, owner, pop
from popmq_server.commands import Pop, Popped
from popmq_server.tx import Tx

#: Bytes of messages that the Pops of one group answer; the last of them may go beyond. Sealed sets are not cut.
ANSWER_BYTES_MAX = 16 << 20


def popped(tx: Tx, command: Pop) -> Popped:
    """Leases what is deliverable, by a token, of lite topics or of a topic."""
    if command.token:
        return owner.pop(tx, command, command.token)
    if tx.answered >= ANSWER_BYTES_MAX:
        return Popped([], 0, 0, tx.now_ms, 0, 0, again=True)
    answer = pop.pop(tx, command) if command.lite is None else lite_pop.pop(tx, command)
    tx.answered += sum(len(row[0]) for row in answer.rows)
    return answer
