"""Which way a Pop goes: by a token, of lite topics, or of a topic."""

from popmq_server.commands import Pop, Popped
from popmq_server.delivery import owner, pop
from popmq_server.lite import lite_pop
from popmq_server.state.tx import Tx


def popped(tx: Tx, command: Pop) -> Popped:
    """Leases what is deliverable."""
    if command.token:
        return owner.pop(tx, command, command.token)
    return pop.pop(tx, command) if command.lite is None else lite_pop.pop(tx, command)
