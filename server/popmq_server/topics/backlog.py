"""How much a topic stores, and how much of it a group has still to do."""

from popmq_server.model.records import Held, Lites, Topic, TopicStat
from popmq_server.state.state import State


def ready(state: State, group_id: int, topic: Topic) -> int:
    """Messages that a group has not popped yet; of a LITE topic those of the lite topics that it has named."""
    if topic.type == "LITE":
        return state.unread.get((group_id, topic.topic_id), 0)
    return state.total.get(topic.topic_id, 0) - state.passed.get((group_id, topic.topic_id), 0)


def bytes_of(state: State, topic: Topic, messages: int) -> int:
    """About how many bytes so many messages of a topic have: by the mean of those that it stores, at most all of them.

    An exact number would need the size of each, in a walk over the backlog, or a second sum in each entry of the queue.
    """
    held, size = stored(state, topic), state.topic_stat.get(topic.topic_id, TopicStat()).bytes
    return min(size, round(messages * size / held)) if held > 0 else 0


def stored(state: State, topic: Topic) -> int:
    """Messages of a topic that can be read by position; dead letters that were redriven cannot."""
    if topic.type == "LITE":
        return state.lites.get(topic.topic_id, Lites()).messages
    held = sum(
        state.queue_max.get((topic.topic_id, queue), 0) - state.queue_min.get((topic.topic_id, queue), 0)
        for queue in range(topic.queues)
    )
    return held - state.topic_stat.get(topic.topic_id, TopicStat()).redriven


def greatest_backlog(state: State, topic_id: int = 0) -> str:
    """Who holds the most, of all topics or of one: for the refusal of a full store or topic.

    A walk over all groups, done only when a send is refused.
    """
    best = (0, "")
    topics = [topic_id] if topic_id else [topic.topic_id for topic in state.named_topics()]
    for where in ((group_id, each) for each in topics for group_id in state.topic_groups.get(each, ())):
        stat, group, topic = state.stat.get(where), state.groups.get(where[0]), state.topics.get(where[1])
        if stat is None or group is None or topic is None:
            continue
        count = ready(state, where[0], topic) + stat.retry + stat.waiting + sum(state.held.get(where, Held()))
        best = max(best, (count, f"group {group.name!r} has {count} messages of topic {topic.name!r} to do"))
    return best[1]
