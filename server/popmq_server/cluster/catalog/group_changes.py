"""Groups: create, change, delete. Each is a change at several brokers, and repeating it does what is left.

    create   201 of all masters ─▶ terms, as begun ─▶ 200 where it is missing, and its dead letters' topic ─▶ terms
    update   201 of all masters ─▶ 200 at all ─▶ terms
    delete   207 at all masters ─▶ its dead letters and retries ─▶ terms

A broker that does not answer holds up a creation that is not made yet, and no other one: programs create what they need
at each start, also while a broker is away.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from popmq_remoting import Request
from popmq_remoting.names import RETRY_V1, RETRY_V2, dead_letter_topic, pop_topic, retry_topic
from popmq_remoting.requests import groups, topics
from popmq_remoting.requests.groups import GroupConfig
from popmq_remoting.requests.topics import TopicConfig
from popmq_server.cluster import names
from popmq_server.cluster.brokers import Brokers, succeeded, whole
from popmq_server.cluster.catalog.groups import TIMEOUT_MIN_DEFAULT, Groups, GroupTerms, group_of
from popmq_server.cluster.catalog.layouts import Layouts
from popmq_server.cluster.catalog.topics import Topics
from popmq_server.cluster.refusals import Asked
from popmq_server.contract import commands as do
from popmq_server.contract.changes import expect_same
from popmq_server.contract.commands import CreatedGroup
from popmq_server.errors import Refused, group_not_found
from popmq_server.values.records import Group

#: Settings that a request may leave unset, as a cluster has them: no limit, and no end.
_UNSET = {"in_flight_max": 0, "subscription_expiry_ms": 0, "snoozes_max": 0}
_TERMS = ("invisible_ms", "share_number", "start_from", "start_ms")


class GroupChanges:
    """Creates, changes and deletes groups."""

    def __init__(
        self, brokers: Brokers, topics: Topics, groups: Groups, layouts: Layouts, now_ms: Callable[[], int]
    ) -> None:
        self._brokers, self._topics, self._groups, self._layouts = brokers, topics, groups, layouts
        self._now_ms = now_ms

    async def create(self, command: do.CreateGroup) -> CreatedGroup:
        """Raises Refused INVALID_FIELD, ALREADY_EXISTS, UNAVAILABLE."""
        known = names.broker_group(command.name, "group.name")
        wanted = replace(command, **_settings(vars(command)))
        found = await self._groups.everywhere(anew=True)
        configs = _having(found, known)
        terms = await self._groups.terms(command.name)
        begun = _terms(vars(wanted), 0)
        if configs:
            # Terms that no name server has were lost, or there never were any: those of the request are new ones.
            existing = group_of(command.name, next(iter(configs.values())), terms or begun)
            expect_same("group", existing, wanted)
        made = bool(configs and terms and terms.created_ms)
        left = [
            broker for broker in found if broker not in configs and not (made and isinstance(found[broker], Refused))
        ]
        if made and terms and not left:
            return CreatedGroup(group_of(command.name, _config(known, vars(wanted)), terms), True)
        await self._groups.write_terms(command.name, begun)
        await self._configured(command.name, vars(wanted), left, configs)
        terms = begun._replace(created_ms=self._now_ms())
        await self._groups.write_terms(command.name, terms)
        self._groups.changed()
        return CreatedGroup(group_of(command.name, _config(known, vars(wanted)), terms), False)

    async def _configured(
        self, name: str, settings: Mapping[str, Any], brokers: Iterable[str], configs: Mapping[str, GroupConfig]
    ) -> None:
        """Creates or changes it at these brokers, and creates its dead-letter topic there. Raises Refused.

        `configs`: its settings at the brokers that have it. How long push consumers may take is the operator's to set.
        """
        known, asked, at = names.broker_group(name), Asked("", group=name), list(brokers)
        timeouts_min = {broker: config.consume_timeout_min for broker, config in configs.items()}
        other_min = next(iter(timeouts_min.values()), TIMEOUT_MIN_DEFAULT)

        def group(broker: str) -> Request:
            timeout_min = timeouts_min.get(broker, other_min)
            return groups.create_group(replace(_config(known, settings), consume_timeout_min=timeout_min))

        whole(await self._brokers.of_each(at, group, succeeded, asked))
        dead_letters = topics.create_topic(TopicConfig(dead_letter_topic(known), 1, 1))
        whole(await self._brokers.of_each(at, lambda _: dead_letters, succeeded, asked))
        shown = names.shown(dead_letter_topic(known))
        await self._brokers.route_anew(shown)  # a reader may have asked for it before
        self._topics.changed(shown)

    async def update(self, command: do.UpdateGroup) -> Group:
        """Raises Refused INVALID_FIELD, GROUP_NOT_FOUND, UNAVAILABLE."""
        known = names.broker_group(command.name, "group.name")
        found = await self._groups.everywhere(anew=True)
        configs = _having(found, known)
        if not configs:
            raise _refusal(found) or group_not_found(command.name, "group.name")
        terms = await self._groups.terms(command.name) or GroupTerms()
        existing = group_of(command.name, next(iter(configs.values())), terms)
        changed = existing._replace(**_settings(command.changes))
        await self._configured(command.name, changed._asdict(), found, configs)
        await self._groups.write_terms(command.name, _terms(changed._asdict(), terms.created_ms or self._now_ms()))
        self._groups.changed()
        return changed

    async def delete(self, command: do.DeleteGroup) -> None:
        """With its positions, retries and dead letters. Raises Refused GROUP_NOT_FOUND, UNAVAILABLE."""
        known = names.broker_group(command.name, "name")
        found = await self._groups.everywhere(anew=True)
        tables = [table for table in found.values() if not isinstance(table, Refused)]
        if not _having(found, known):
            if (refused := _refusal(found)) is not None:
                raise refused
            if await self._groups.terms(command.name) is None:
                raise group_not_found(command.name, "name")
        await self._brokers.everywhere(lambda _: groups.delete_group(known), Asked("", group=command.name))
        self._groups.changed()
        every = await self._brokers.all_topics()
        for topic in sorted(_of_group(known, every, {name for table in tables for name in table})):
            await self._brokers.remove_topic(topic)
        await self._layouts.remove(names.shown(dead_letter_topic(known)))
        self._topics.changed(names.shown(dead_letter_topic(known)))
        await self._groups.remove_terms(command.name)
        self._groups.changed()


def _having(found: Mapping[str, dict[str, GroupConfig] | Refused], known: str) -> dict[str, GroupConfig]:
    """The settings of a group at the brokers that have it."""
    return {broker: table[known] for broker, table in found.items() if isinstance(table, dict) and known in table}


def _refusal(found: Mapping[str, dict[str, GroupConfig] | Refused]) -> Refused | None:
    """Why a broker has not said which groups it has; None: all have."""
    return next((each for each in found.values() if isinstance(each, Refused)), None)


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _UNSET.get(name) if value is None else value for name, value in settings.items()}


def _config(known: str, settings: Mapping[str, Any]) -> GroupConfig:
    """What brokers keep. Of `settings` as in records.Group."""
    return GroupConfig(
        known,
        settings["max_attempts"] - 1,
        settings["fifo"],
        tuple(settings["delays_ms"]),
        consume_enabled=settings["consume_enable"],
    )


def _terms(settings: Mapping[str, Any], created_ms: int) -> GroupTerms:
    """What name servers keep."""
    return GroupTerms(**{name: settings[name] for name in _TERMS}, created_ms=created_ms)


def _of_group(group: str, every: frozenset[str], groups: Iterable[str]) -> set[str]:
    """Topics that exist for the sake of a group, among all: dead letters, and what it has to read again.

    Names as brokers have them: there %RETRY%a_b_c is of group a and topic b_c, or of group a_b and topic c.
    """
    found = {dead_letter_topic(group), retry_topic(group)}
    for topic in every:
        found |= {pop_topic(RETRY_V2, topic, group), names.retry_topic(names.shown(group), names.shown(topic))}
        old = pop_topic(RETRY_V1, topic, group)
        if old in every and not any(_is_of(old, other, every) for other in groups if other != group):
            found.add(old)
    return found & every


def _is_of(retries: str, group: str, every: frozenset[str]) -> bool:
    prefix = pop_topic(RETRY_V1, "", group)
    return retries.startswith(prefix) and retries.removeprefix(prefix) in every


BY_GROUP_CHANGES = (
    do.CreateGroup.awaited_by(GroupChanges.create)
    | do.UpdateGroup.awaited_by(GroupChanges.update)
    | do.DeleteGroup.awaited_by(GroupChanges.delete)
)
