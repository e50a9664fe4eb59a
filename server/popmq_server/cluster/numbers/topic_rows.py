"""The rows of lists of topics. One is made anew only when what it is made of has changed: a page that is read each
second lists thousands, and making a row takes twenty times as long as comparing.
"""

from collections.abc import Mapping
from typing import NamedTuple

from popmq_remoting.requests.topics import TopicConfig
from popmq_server.cluster import layout
from popmq_server.cluster.catalog.positions import Ends
from popmq_server.cluster.catalog.topics import KnownTopic, known_topic, queues_of
from popmq_server.cluster.layout import Layout, QueuePlace
from popmq_server.cluster.numbers.counts import LISTED_S, Counts, TopicTable
from popmq_server.cluster.remembered import Remembered
from popmq_server.contract.commands.numbers import TopicNumbers
from popmq_server.values.records import Topic


class _Row(NamedTuple):
    """`kept`: the text of its layout; "": it has none."""

    topic: KnownTopic
    configs: Mapping[str, TopicConfig]
    kept: str
    ends: Mapping[QueuePlace, Ends]
    numbers: TopicNumbers


class TopicRows:
    """`kept`: all layouts of a namespace, as texts."""

    def __init__(self, counts: Counts, kept: Remembered[str, dict[str, str]]) -> None:
        self._counts, self._kept = counts, kept
        self._rows: dict[str, _Row] = {}

    def only(self, table: TopicTable) -> None:
        """Forgets the rows of topics that are gone."""
        if len(self._rows) > len(table):
            self._rows = {name: row for name, row in self._rows.items() if name in table}

    async def row(self, name: str, configs: Mapping[str, TopicConfig]) -> TopicNumbers:
        """Its layout was read with all others, and a missing one is not written. Raises Refused."""
        row = self._rows.get(name)
        topic = known_topic(name, configs.values()) if row is None or row.configs != configs else row.topic
        kept = (await self._kept.get(layout.namespace(topic.is_fifo), LISTED_S)).get(topic.broker_name, "")
        ends = await self._counts.ends(topic.broker_name, LISTED_S, configs)
        if row is None or (row.configs, row.kept, row.ends) != (configs, kept, ends):
            planned = layout.read_kept(kept).appended({broker: queues_of(each) for broker, each in configs.items()})
            row = self._rows[name] = _Row(topic, configs, kept, ends, topic_numbers(topic.settings, planned, ends))
        return row.numbers


def topic_numbers(topic: Topic, planned: Layout, ends: Mapping[QueuePlace, Ends]) -> TopicNumbers:
    """The numbers of a topic, without queues whose broker does not answer."""
    numbered = sorted(
        (number, *end)
        for place, end in ends.items()
        if (number := planned.number(place.broker, place.queue_id)) is not None
    )
    messages = sum(end.most - end.least for end in ends.values())
    return TopicNumbers(topic._replace(queues=len(planned)), messages, numbered, None, None, None)
