"""Topics: their settings as their brokers have them, and their queues as the name servers know them."""

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from popmq_remoting import Route
from popmq_remoting.requests import topics
from popmq_remoting.requests.topics import READ_WRITE, TopicConfig
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
#: By the bits that brokers have for reading and writing.
PERMISSIONS = {6: "READ_WRITE", 4: "READ_ONLY", 2: "WRITE_ONLY", 0: "NO_ACCESS"}


class KnownTopic(NamedTuple):
    """A topic: its settings, and what brokers call it. `queues` of the settings are those of the brokers that answered;
    their numbers, and those of brokers that are away, are in its layout.
    """

    settings: Topic
    broker_name: str

    @property
    def name(self) -> str:
        """As PopMQ calls it."""
        return self.settings.name

    @property
    def is_fifo(self) -> bool:
        return self.settings.type == "FIFO"


def known_topic(name: str, configs: Iterable[TopicConfig]) -> KnownTopic:
    """What brokers say together. What one of them permits is permitted: an operator may have closed another one.

    A topic that another program made without a type is NORMAL.
    """
    settings = list(configs)
    said = next((each.attributes[TYPE_ATTRIBUTE] for each in settings if TYPE_ATTRIBUTE in each.attributes), "NORMAL")
    allowed = functools.reduce(operator.or_, (each.permission for each in settings))
    topic = Topic(
        *(TopicId(0), name, sum(queues_of(each) for each in settings), True, 0, 0),
        type=said if said in _TYPES else "NORMAL",
        permission=PERMISSIONS[int(allowed & READ_WRITE)],
    )
    return KnownTopic(topic, names.broker_topic(name))


def queues_of(config: TopicConfig) -> int:
    """Those that can be read may be more than those that are written to."""
    return max(config.read_queues, config.write_queues)


class Topics:
    """The topics of the cluster, by the names that PopMQ has for them."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._settings = Remembered[str, KnownTopic | None](self._read)
        #: Called when this gateway has made, changed or deleted one.
        self.on_change: Callable[[], None] = lambda: None
        #: Called with the name of one that does not exist, or not any more.
        self.on_absence: Callable[[str], None] = lambda name: None

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

    async def at(self, name: str, brokers: Iterable[str]) -> dict[str, TopicConfig | Refused]:
        """Its settings at each of these brokers now; TOPIC_NOT_FOUND where it is not."""
        asked = topics.get_topic(names.broker_topic(name))
        return await self._brokers.of_each(brokers, lambda _: asked, topics.topic_config, Asked("", name))

    async def _read(self, name: str) -> KnownTopic | None:
        found = await self._found(name)
        if found is None:
            self.on_absence(name)
        return found

    async def _found(self, name: str) -> KnownTopic | None:
        """From those of its brokers that answer. None: there is none."""
        try:
            route = await self._brokers.route(name)
        except Refused as refused:
            if refused.code != "TOPIC_NOT_FOUND":
                raise
            return None
        found = await self.at(name, sorted(route.queues))
        if configs := having(found):
            return known_topic(name, configs.values())
        if (away := unanswered(found)) is not None:
            raise away
        return None

    def forget(self, name: str) -> None:
        """It was changed, or a broker said that it is not there."""
        self._settings.forget(name)

    def changed(self, name: str) -> None:
        """This gateway has made, changed or deleted it: its next list shows that."""
        self.forget(name)
        self.on_change()

    def deleted(self, name: str) -> None:
        """This gateway has deleted it."""
        self.changed(name)
        self.on_absence(name)

    def close(self) -> None:
        """Ends what is being read."""
        self._settings.close()


def having(found: Mapping[str, TopicConfig | Refused]) -> dict[str, TopicConfig]:
    """The brokers that have the topic."""
    return {broker: config for broker, config in found.items() if isinstance(config, TopicConfig)}


def unanswered(found: Mapping[str, TopicConfig | Refused]) -> Refused | None:
    """Why a broker has not said whether it has the topic; None: all have."""
    return next((each for each in found.values() if isinstance(each, Refused) and each.code != "TOPIC_NOT_FOUND"), None)
