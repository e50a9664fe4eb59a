"""Topics: their settings as one of their brokers has them, and their queues as the name servers know them."""

from typing import NamedTuple

from popmq_remoting import Route
from popmq_remoting.codes import Permission
from popmq_remoting.requests import topics
from popmq_server.cluster import names
from popmq_server.cluster.brokers import Brokers
from popmq_server.cluster.refusals import Asked
from popmq_server.cluster.remembered import Remembered
from popmq_server.errors import Refused, topic_not_found
from popmq_server.values.ids import TopicId
from popmq_server.values.records import Topic

#: The attribute of a topic that has its type; unknown to brokers before 5, and on topics made without it.
TYPE_ATTRIBUTE = "message.type"
_TYPES = frozenset(("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE"))
_PERMISSIONS = {6: "READ_WRITE", 4: "READ_ONLY", 2: "WRITE_ONLY", 0: "NO_ACCESS"}


class KnownTopic(NamedTuple):
    """A topic: its settings, and what brokers call it. `queues` of the settings are those of one broker."""

    settings: Topic
    broker_name: str

    @property
    def name(self) -> str:
        """As PopMQ calls it."""
        return self.settings.name

    @property
    def is_fifo(self) -> bool:
        return self.settings.type == "FIFO"


def known_topic(name: str, config: topics.TopicConfig) -> KnownTopic:
    """What a broker's settings say. A topic that another program made without a type is NORMAL."""
    said = config.attributes.get(TYPE_ATTRIBUTE, "NORMAL")
    allowed = int(config.permission & (Permission.READ | Permission.WRITE))
    queues = max(config.read_queues, config.write_queues)
    return KnownTopic(
        Topic(
            *(TopicId(0), name, queues, True, 0, 0),
            type=said if said in _TYPES else "NORMAL",
            permission=_PERMISSIONS[allowed],
        ),
        config.topic,
    )


class Topics:
    """The topics of the cluster, by the names that PopMQ has for them."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._settings = Remembered[str, KnownTopic | None](self._read)

    async def get(self, name: str, field: str = "topic") -> KnownTopic:
        """Raises Refused INVALID_FIELD, TOPIC_NOT_FOUND, UNAVAILABLE."""
        names.broker_topic(name, field)
        known = await self._settings.get(name)
        if known is None:
            raise topic_not_found(name, field)
        return known

    async def route(self, name: str, field: str = "topic") -> Route:
        """Its queues by broker. Raises Refused as `get`."""
        return await self._brokers.route(name, field)

    async def _read(self, name: str) -> KnownTopic | None:
        """From the first of its brokers that answers. A dead-letter topic has no settings that matter."""
        try:
            route = await self._brokers.route(name)
        except Refused as refused:
            if refused.code != "TOPIC_NOT_FOUND":
                raise
            return None
        broker_name, last = names.broker_topic(name), topic_not_found(name)
        for broker in sorted(route.queues):
            try:
                config = await self._brokers.call(
                    Asked(broker, name), topics.get_topic(broker_name), topics.topic_config
                )
            except Refused as refused:
                last = refused
                continue
            return known_topic(name, config)
        if last.code == "TOPIC_NOT_FOUND":
            return None
        raise last

    def forget(self, name: str) -> None:
        """It was changed, or a broker said that it is not there."""
        self._settings.forget(name)

    def close(self) -> None:
        """Ends what is being read."""
        self._settings.close()
