"""How queues and messages of Dramatiq are named in the broker."""

import hashlib

#: What the broker takes as a message id.
_MESSAGE_ID_BYTES_MAX = 128


def topic_of(namespace: str, queue_name: str) -> str:
    """The topic of a queue, and the group that reads it."""
    return f"{namespace}.{queue_name}"


def id_of(message_id: str) -> str:
    """The message id that the broker knows: Dramatiq's own, or a hash of one that is too long."""
    fits = 0 < len(message_id.encode()) <= _MESSAGE_ID_BYTES_MAX
    return message_id if fits else hashlib.sha256(message_id.encode()).hexdigest()
