"""Types of ids and of the pairs that are keys of tables: a group in a topic cannot be mistaken for a queue of a topic.

    GroupTopic   G, T       counters, subscriptions, sweeps of a group in a topic
    TopicQueue   T, Q       the ends of a queue
    GroupQueue   G, T, Q    the position of a group in a queue
    MessageGroup G, T, hash the message group of a FIFO topic, as a group reads it

The ids are plain numbers when the program runs, and the pairs plain tuples, so the types cost nothing. mypy knows an
id from the place where it is made or read, and rejects a pair of one kind where the other is expected.
"""

from typing import NewType, TypeAlias

GroupId = NewType("GroupId", int)
TopicId = NewType("TopicId", int)

GroupTopic: TypeAlias = tuple[GroupId, TopicId]
TopicQueue: TypeAlias = tuple[TopicId, int]
GroupQueue: TypeAlias = tuple[GroupId, TopicId, int]
MessageGroup: TypeAlias = tuple[GroupId, TopicId, bytes]
#: Number of a block of offsets → bits of those that a group passed beyond its position.
Taken: TypeAlias = dict[int, int]

#: Ids have 32 bits in every key, and are never reused.
ENTITY_MAX = (1 << 32) - 1
