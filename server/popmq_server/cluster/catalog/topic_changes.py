"""Topics: create, change, delete. Each is a change at several brokers, and repeating it does what is left.

    create   settings at all masters (351) ─▶ the layout at the name servers ─▶ 17 where the layout has queues
    update   settings at all masters (351) ─▶ the layout, with more queues ─▶ 17 where something changes
    delete   215 at all masters ─▶ 216 and the layout at the name servers

A layout that is written says how a topic was meant, so a creation that was interrupted is finished the same way later,
whichever brokers the cluster has by then. Brokers change the type of a topic without a word: here it never changes.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from popmq_remoting.codes import Permission
from popmq_remoting.requests import topics
from popmq_remoting.requests.topics import TopicConfig
from popmq_server.clock import pause
from popmq_server.cluster import layout, names
from popmq_server.cluster.brokers import Brokers, succeeded, whole
from popmq_server.cluster.catalog.groups import Groups
from popmq_server.cluster.catalog.layouts import Layouts
from popmq_server.cluster.catalog.topics import (
    PERMISSIONS,
    TYPE_ATTRIBUTE,
    KnownTopic,
    Topics,
    having,
    known_topic,
    queues_of,
    unanswered,
)
from popmq_server.cluster.features import PRIORITIES
from popmq_server.cluster.layout import Layout
from popmq_server.cluster.refusals import Asked
from popmq_server.contract import commands as do
from popmq_server.contract.changes import check_topic_changes, expect_same
from popmq_server.contract.commands import CreatedTopic
from popmq_server.errors import Refused, topic_not_found
from popmq_server.values.ids import TopicId
from popmq_server.values.records import Topic

_BITS = {name: Permission(bits) for bits, name in PERMISSIONS.items()}
#: Until the name servers show what brokers have just told them.
_SHOWN_S, _LOOK_S = 2.0, 0.05


class TopicChanges:
    """Creates, changes and deletes topics."""

    def __init__(self, brokers: Brokers, topics: Topics, groups: Groups, layouts: Layouts) -> None:
        self._brokers, self._topics, self._groups, self._layouts = brokers, topics, groups, layouts
        self._loop = asyncio.get_running_loop()

    # ── Create ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def create(self, command: do.CreateTopic) -> CreatedTopic:
        """Raises Refused INVALID_FIELD, ALREADY_EXISTS, UNAVAILABLE."""
        broker_name = names.broker_topic(command.name, "topic.name")
        masters = await self._brokers.masters(anew=True)
        if command.type == "PRIORITY":
            await self._expect_priorities()
        found = await self._topics.at(command.name, masters)
        configs = having(found)
        if configs:
            topic, planned = await self._existing(command.name, configs)
            expect_same("topic", topic.settings, _comparable(command, topic.settings, planned))
        elif (refused := unanswered(found)) is not None:
            raise refused
        else:
            topic, planned = _new(command, broker_name, masters)
            await self._layouts.write(topic, planned)
        left = {
            broker: _config(topic, count)
            for broker, count in planned.counts().items()
            if broker in masters and broker not in configs
        }
        if configs and left:
            left = await self._surely_left(topic, left, found)
        if left:
            await self._configured(topic, left)
        return CreatedTopic(topic.settings, bool(configs) and not left)

    async def _expect_priorities(self) -> None:
        for broker, facts in (await self._brokers.facts()).items():
            if facts.version < PRIORITIES:
                raise Refused(
                    "UNSUPPORTED",
                    f"broker {broker} has version {facts.text}; PRIORITY topics need 5.4",
                    field="topic.type",
                    action="the operator upgrades the broker, or create a topic for each priority",
                )

    async def _existing(self, name: str, configs: Mapping[str, TopicConfig]) -> tuple[KnownTopic, Layout]:
        """A topic that some brokers have, and its layout. Raises Refused UNAVAILABLE."""
        topic = known_topic(name, configs.values())
        stored = await self._layouts.stored(topic)
        if stored is None and topic.is_fifo:
            raise layout.missing(name)
        known = stored.layout if stored is not None else Layout([])
        planned = known.appended({broker: queues_of(config) for broker, config in configs.items()})
        return topic._replace(settings=topic.settings._replace(queues=len(planned))), planned

    async def _surely_left(
        self, topic: KnownTopic, left: dict[str, TopicConfig], found: Mapping[str, TopicConfig | Refused]
    ) -> dict[str, TopicConfig]:
        """Without brokers that do not answer, where the name servers know that they have the topic."""
        route = await self._topics.route(topic.name)
        away = {broker for broker in left if (said := found[broker]) and _is_away(said)}
        return {broker: config for broker, config in left.items() if not (broker in away and broker in route.queues)}

    async def _configured(self, topic: KnownTopic, configs: Mapping[str, TopicConfig]) -> None:
        """Creates or changes it at these brokers, and waits until name servers show it. Raises Refused."""
        self._topics.forget(topic.name)
        answers = await self._brokers.of_each(
            configs, lambda broker: topics.create_topic(configs[broker]), succeeded, Asked("", field="topic.name")
        )
        whole(answers)
        until_s = min(self._brokers.until_s(), self._loop.time() + _SHOWN_S)
        while True:
            route = await self._brokers.route_anew(topic.name)
            if (route and configs.keys() <= route.queues.keys()) or self._loop.time() >= until_s:
                break
            await pause(_LOOK_S)
        self._topics.changed(topic.name)

    # ── Update ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def update(self, command: do.UpdateTopic) -> Topic:
        """Raises Refused INVALID_FIELD, TOPIC_NOT_FOUND, UNAVAILABLE."""
        names.broker_topic(command.name, "topic.name")
        masters = await self._brokers.masters(anew=True)
        found = await self._topics.at(command.name, masters)
        configs = having(found)
        if not configs:
            raise unanswered(found) or topic_not_found(command.name, "topic.name")
        topic, planned = await self._existing(command.name, configs)
        check_topic_changes(topic.settings, command)
        counts = layout.grown(planned.counts(), max(0, command.queues - len(planned)), masters)
        permission = dict(command.changes).get("permission")
        wanted = {
            broker: _changed(topic, configs.get(broker), count, str(permission or ""))
            for broker, count in counts.items()
            if broker in masters
        }
        # Brokers keep the attributes that a change does not name.
        changes = {
            broker: replace(config, attributes={}) if broker in configs else config
            for broker, config in wanted.items()
            if config != configs.get(broker)
        }
        whole_layout = planned.appended(counts)
        if len(whole_layout) > len(planned):  # first, or another gateway numbers the queues as it meets them
            await self._layouts.write(topic, whole_layout)
            self._topics.changed(topic.name)
        if changes:
            await self._configured(topic, changes)
        settings = topic.settings._replace(queues=len(whole_layout))
        return settings._replace(permission=str(permission)) if permission else settings

    # ── Delete ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def delete(self, command: do.DeleteTopic) -> None:
        """With what pull groups sent back from it. Raises Refused TOPIC_NOT_FOUND, UNAVAILABLE."""
        broker_name = names.broker_topic(command.name, "name")
        found = await self._topics.at(command.name, await self._brokers.masters(anew=True))
        if not having(found):
            if (refused := unanswered(found)) is not None:
                raise refused
            if await self._brokers.route_anew(command.name) is None:
                raise topic_not_found(command.name, "name")
        retries = {names.retry_topic(group, command.name) for group in await self._groups.all()}
        for hidden in sorted(retries & await self._brokers.all_topics()):
            await self._brokers.remove_topic(hidden)
        await self._brokers.remove_topic(broker_name)
        await self._layouts.remove(command.name)
        self._topics.deleted(command.name)


def _is_away(said: TopicConfig | Refused) -> bool:
    return isinstance(said, Refused) and said.code != "TOPIC_NOT_FOUND"


def _new(command: do.CreateTopic, broker_name: str, masters: list[str]) -> tuple[KnownTopic, Layout]:
    """A topic that no broker has, and the layout that it gets: at least one queue at each broker."""
    planned = layout.of_route(layout.spread(command.queues, masters))
    settings = Topic(
        *(TopicId(0), command.name, len(planned), True, 0, 0), type=command.type, permission=command.permission
    )
    return KnownTopic(settings, broker_name), planned


def _comparable(command: do.CreateTopic, existing: Topic, planned: Layout) -> do.CreateTopic:
    """The creation without what a cluster has no settings for; each broker has a queue at least."""
    queues = max(command.queues, len(planned.counts()))
    return replace(command, queues=queues, by_age=existing.by_age, keep_ms=existing.keep_ms)


def _config(topic: KnownTopic, queues: int) -> TopicConfig:
    attributes = {TYPE_ATTRIBUTE: topic.settings.type}
    return TopicConfig(topic.broker_name, queues, queues, _BITS[topic.settings.permission], attributes)


def _changed(topic: KnownTopic, config: TopicConfig | None, queues: int, permission: str) -> TopicConfig:
    """The settings of one broker after an update: what it does not name stays as it is there."""
    if config is None:
        config = _config(topic, queues)
    if queues > queues_of(config):
        config = replace(config, read_queues=queues, write_queues=queues)
    return replace(config, permission=_BITS[permission]) if permission else config


BY_TOPIC_CHANGES = (
    do.CreateTopic.awaited_by(TopicChanges.create)
    | do.UpdateTopic.awaited_by(TopicChanges.update)
    | do.DeleteTopic.awaited_by(TopicChanges.delete)
)
