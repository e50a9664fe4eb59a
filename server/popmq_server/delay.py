"""Delayed messages: stub of the foundation."""

from popmq_server.commands import Place
from popmq_server.errors import unsupported
from popmq_server.message import Outgoing
from popmq_server.records import Topic
from popmq_server.tx import Tx


def schedule(tx: Tx, topic: Topic, message: Outgoing, due_ms: int) -> Place:
    """Keeps a message until it is due."""
    raise unsupported("deliver_at_ms", "delayed messages")
