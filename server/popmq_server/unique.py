"""Message ids that are stored once: stub of the foundation."""

from popmq_server.commands import Place
from popmq_server.message import Outgoing
from popmq_server.records import Topic
from popmq_server.tx import Tx


def seen(tx: Tx, topic: Topic, message: Outgoing) -> Place | None:
    """Where a message of this id is, when the topic compares ids and it was stored in the topic's time."""
    return None


def remember(tx: Tx, topic: Topic, message: Outgoing, place: Place) -> None:
    """Notes where a message is."""
