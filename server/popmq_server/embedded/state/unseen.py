"""Sums over all topics of messages that are not visible yet, so that a list of them need not add up all topics.

unseen   "delayed", "half" → the sum of this counter of the topics; no entry for 0
"""

from collections.abc import Mapping
from typing import Any

from popmq_server.values.records import Topic, TopicStat

_NAMES = ("delayed", "half")


def load(topics: Any, stats: Any, sums: Any) -> None:
    """The scan at start; all are tables, by topic id and by name.

    Lite topics count for their LITE topic, whose numbers have theirs.
    """
    for topic in topics.values():
        if not topic.parent_id:
            for name, count in counts(stats, topic).items():
                sums.load(name, sums.get(name, 0) + count)


def counts(stats: Any, topic: Topic) -> dict[str, int]:
    """The counters of one topic that are not 0."""
    stat = stats.get(topic.topic_id, TopicStat())
    return {name: count for name, count in zip(_NAMES, (stat.delayed, stat.half), strict=True) if count}


def add(sums: Any, changes: Mapping[str, int], sign: int = 1) -> None:
    """Adds changes of a topic's counters, or with a negative sign subtracts them."""
    for name in _NAMES:
        if change := changes.get(name, 0):
            if count := sums.get(name, 0) + sign * change:
                sums[name] = count
            else:
                sums.pop(name)
