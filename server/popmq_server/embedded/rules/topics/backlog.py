"""Sizes: the messages that a topic stores, and a group's backlog of them.

See docs/decisions/0012-counts-as-differences.md.
"""

import itertools
from collections.abc import Callable

from popmq_server.embedded.state.state import State
from popmq_server.values.ids import GroupId, TopicId
from popmq_server.values.records import (
    HeldNumbers,
    Lites,
    Topic,
    TopicStat,
)

#: Subscriptions among which a refusal looks for the greatest backlog: some 2 ms.
SUBSCRIPTIONS_MAX = 1000


def ready(state: State, group_id: GroupId, topic: Topic) -> int:
    """Messages that a group has not popped yet; for a LITE topic those of the lite topics that it has named."""
    if topic.type == "LITE":
        return state.unread.get((group_id, topic.topic_id), 0)
    return state.total.get(topic.topic_id, 0) - state.passed.get((group_id, topic.topic_id), 0)


def sizing(state: State, topic: Topic) -> Callable[[int], int]:
    """Estimates the bytes of some messages from the topic's mean size; at most all bytes of the topic.

    An exact number would need a walk over the backlog, or a second sum in each entry of the queue. All queues are
    looked at here, once: not for each estimate.
    """
    held, size = stored(state, topic), state.topic_stat.get(topic.topic_id, TopicStat()).bytes
    return lambda messages: min(size, round(messages * size / held)) if held > 0 else 0


def stored(state: State, topic: Topic) -> int:
    """Number of messages that a topic stores, without redriven dead letters."""
    if topic.type == "LITE":
        return state.lites.get(topic.topic_id, Lites()).messages
    held = sum(
        state.queue_max.get((topic.topic_id, queue), 0) - state.queue_min.get((topic.topic_id, queue), 0)
        for queue in range(topic.queues)
    )
    return held - state.topic_stat.get(topic.topic_id, TopicStat()).redriven


def greatest_backlog(state: State, topic_id: int = 0) -> str:
    """The group with the largest backlog, in all topics or one: for the refusal of a full store or topic. Where no
    group has any: the topic that keeps the most.

    Of more than SUBSCRIPTIONS_MAX it looks at the first ones, and at the group that holds the oldest messages of the
    topic.
    """
    best = (0, "")
    topics = [TopicId(topic_id)] if topic_id else (topic.topic_id for topic in state.named_topics())
    holder = [(state.laggards[topic_id], TopicId(topic_id))] if topic_id in state.laggards else []
    pairs = ((group_id, each) for each in topics for group_id in state.topic_groups.get(each, ()))
    for where in itertools.islice(itertools.chain(holder, pairs), SUBSCRIPTIONS_MAX):
        stat, group, topic = state.stat.get(where), state.groups.get(where[0]), state.topics.get(where[1])
        if stat is None or group is None or topic is None:
            continue
        count = ready(state, where[0], topic) + stat.retry + stat.waiting + sum(state.held.get(where, HeldNumbers()))
        best = max(best, (count, f"group {group.name!r} has {count} messages of topic {topic.name!r} to do"))
    return best[1] if best[0] or topic_id else _largest(state)


def _largest(state: State) -> str:
    """The topic with the most bytes; "" if there are no messages."""
    sizes = ((state.topic_stat.get(topic.topic_id, TopicStat()).bytes, topic.name) for topic in state.named_topics())
    size, name = max(itertools.islice(sizes, SUBSCRIPTIONS_MAX), default=(0, ""))
    return f"topic {name!r} keeps {size} bytes, which no group has to do any more" if size else ""
