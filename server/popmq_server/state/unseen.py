"""Sums over all topics of the messages that nobody can pop yet, so that a list of them need not add up all topics.

unseen   "delayed", "half" → the sum of this counter of the topics; no entry for 0
"""

from collections.abc import Mapping

from popmq_server.model.records import Topic, TopicStat
from popmq_server.storage.table import Table

_NAMES = ("delayed", "half")


def load(topics: Table[int, Topic], stats: Table[int, TopicStat], sums: Table[str, int]) -> None:
    """The scan at start. Lite topics count for their LITE topic, whose numbers have theirs."""
    for topic in topics.values():
        if not topic.parent_id:
            for name, count in counts(stats, topic).items():
                sums.load(name, sums.get(name, 0) + count)


def counts(stats: Table[int, TopicStat], topic: Topic) -> dict[str, int]:
    """The counters of one topic that are not 0."""
    stat = stats.get(topic.topic_id, TopicStat())
    return {name: count for name, count in zip(_NAMES, (stat.delayed, stat.half), strict=True) if count}


def add(sums: Table[str, int], changes: Mapping[str, int], sign: int = 1) -> None:
    """Adds the changes of counters of a topic, or takes them away."""
    for name in _NAMES:
        if change := changes.get(name, 0):
            if count := sums.get(name, 0) + sign * change:
                sums[name] = count
            else:
                sums.pop(name)
