"""Routes a Pop: with a token, on lite topics, or on a topic."""

from popmq_server.commands import Pop
from popmq_server.delivery import pop, token_pop
from popmq_server.lite import lite_pop
from popmq_server.model.leased import Leased
from popmq_server.state.tx import Tx


def popped(tx: Tx, command: Pop) -> Leased:
    """Leases deliverable messages."""
    if command.token:
        return token_pop.pop(tx, command, command.token)
    return pop.pop(tx, command) if command.lite is None else lite_pop.pop(tx, command)
