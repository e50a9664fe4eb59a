"""Half messages: stub of the foundation."""

from popmq_server.commands import Place
from popmq_server.errors import unsupported
from popmq_server.message import Outgoing
from popmq_server.records import Topic
from popmq_server.tx import Tx


def begin(tx: Tx, topic: Topic, message: Outgoing) -> Place:
    """Keeps a half message until it is ended."""
    raise unsupported("transaction", "transactions")
