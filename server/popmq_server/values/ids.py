"""Types of ids and of the pairs that are keys of tables: a group in a topic cannot be mistaken for a queue of a topic.

    GroupTopic   G, T       counters, subscriptions, sweeps of a group in a topic
    TopicQueue   T, Q       the ends of a queue
    GroupQueue   G, T, Q    the position of a group in a queue
    MessageGroup G, T, hash the message group of a FIFO topic, as a group reads it

The ids are plain numbers when the program runs, and the pairs plain tuples, so the types cost nothing. mypy knows an
id from the place where it is made or read, and rejects a pair of one kind where the other is expected.
"""

from typing import NewType, TypeAlias

from popmq_server.errors import Refused

GroupId = NewType("GroupId", int)
TopicId = NewType("TopicId", int)

GroupTopic: TypeAlias = tuple[GroupId, TopicId]
TopicQueue: TypeAlias = tuple[TopicId, int]
GroupQueue: TypeAlias = tuple[GroupId, TopicId, int]
MessageGroup: TypeAlias = tuple[GroupId, TopicId, bytes]

#: Ids have 32 bits in every key, and are never reused.
ENTITY_MAX = (1 << 32) - 1


def checked(entity_id: int) -> int:
    """A new id of a topic, group, lite topic or owner. Raises Refused after the last one: a key could not be made."""
    if entity_id > ENTITY_MAX:
        raise Refused(
            "STORAGE_FULL",
            f"the store has given all its {ENTITY_MAX:,} ids to topics, groups, lite topics and owners",
            action="move the topics to a broker on a new folder with `popmq export` and `popmq import`",
        )
    return entity_id
