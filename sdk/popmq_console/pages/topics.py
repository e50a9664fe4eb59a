"""Topics: the list, one of them with its queues and groups, and the operator's actions.

Pausing is the permission of the topic: READ_ONLY stops producers, WRITE_ONLY consumers. What cannot be undone asks
for the name, and the server compares it, not only the script.
"""

from typing import Any, cast, get_args

import popmq
from popmq.topic import Permission, TopicType
from popmq_console import charts
from popmq_console.asking import INT64_MAX, Ask, Outcome, wrong
from popmq_console.numbers import backlog, by_topic
from popmq_console.sorting import Columns, ordered
from popmq_console.views import address, paged

#: Queues that the page of a topic shows at once.
QUEUES_SHOWN = 64
#: Dead-letter topics have a page of their own; a search finds them here, too.
HIDDEN = "%DLQ%"
QUEUES: Columns[popmq.QueueStats] = {
    "Queue": lambda one: one.queue,
    "Messages#": lambda one: one.max_offset - one.min_offset,
    "First offset#": lambda one: one.min_offset,
    "Next offset#": lambda one: one.max_offset,
}
GROUPS: Columns[popmq.GroupStats] = {
    "Group": lambda row: row.group,
    "Backlog#": backlog,
    "Ready#": lambda row: row.ready,
    "In flight#": lambda row: row.in_flight,
    "Retry#": lambda row: row.retry,
    "Backoff#": lambda row: row.backoff,
    "Waiting#": lambda row: row.waiting,
    "Oldest#": lambda row: row.oldest_age,
    "Acked/s#": lambda row: row.acked_per_s,
}


async def topics(ask: Ask) -> dict[str, Any]:
    """The list, by name or by a number, filtered by a part of the name."""
    stats = await ask.login.numbers.stats()
    part = ask.value("q")
    listed = [row for row in stats.topics if part or not row.topic.startswith(HIDDEN)]
    rows = sorted((row for row in listed if part.lower() in row.topic.lower()), key=lambda row: row.topic)
    groups = by_topic(stats.groups)
    backlogs = {row.topic: sum(map(backlog, groups.get(row.topic, ()))) for row in rows}
    readers = {row.topic: len(groups.get(row.topic, ())) for row in rows}
    columns: Columns[popmq.TopicStats] = {
        "Topic": lambda row: row.topic,
        "Messages#": lambda row: row.messages,
        "Sent/s#": lambda row: row.sent_per_s,
        "Backlog#": lambda row: backlogs[row.topic],
        "Groups#": lambda row: readers[row.topic],
        "Delayed#": lambda row: row.delayed,
        "Half#": lambda row: row.half,
        "Size#": lambda row: row.bytes,
        "Queues#": lambda row: len(row.queues),
    }
    order = ordered(rows, columns, ask.value("sort"))
    return {
        "rows": paged(order.items, ask.value("page")),
        "order": order,
        "backlogs": backlogs,
        "readers": readers,
        "q": part,
        "types": [kind for kind in get_args(TopicType) if kind != "LITE" or ask.login.has("lite")],
    }


async def topic(ask: Ask) -> dict[str, Any]:
    """One topic. Raises TopicNotFound."""
    name = ask.value("name")
    settings = await ask.client.topics.get(name)
    stats = await ask.client.broker.stats(topic=name)
    (numbers,) = stats.topics
    groups = ordered(stats.groups, GROUPS, ask.value("sort"))
    queues = ordered(numbers.queues, QUEUES, ask.value("queues"))
    return {
        "topic": settings,
        "numbers": numbers,
        "queues": queues.items[:QUEUES_SHOWN],
        "queue_order": queues,
        "groups": [(row, backlog(row)) for row in groups.items],
        "group_order": groups,
        "permissions": get_args(Permission),
        **await charts.drawn(ask, charts.of_topic, topic=name),
    }


def page_of(name: str) -> str:
    """The address of a topic's page."""
    return address("/topic", name=name)


async def create(ask: Ask) -> Outcome:
    """Makes a topic. Raises AlreadyExists, InvalidField."""
    name, kind = ask.given("name"), ask.given("type")
    if kind not in get_args(TopicType):
        raise wrong("type", f"{kind!r} is not a topic type")
    keep = ask.duration("keep")
    retention = None if keep is None else popmq.Retention(keep=keep)
    topic = await ask.client.topics.create(name, ask.number("queues", 1), cast(TopicType, kind), retention)
    return Outcome(f"The topic {topic.name} has {topic.queues} queues.", page_of(topic.name))


async def change(ask: Ask) -> Outcome:
    """Changes queues, retention and quota. Raises InvalidField, TopicNotFound."""
    name = ask.given("name")
    before = await ask.client.topics.get(name)
    retention = _retention(ask, before.retention) if ask.login.has("retention") else None
    quota = _quota(ask) if ask.login.has("quotas") else None
    queues = ask.number("queues", 1)
    wanted = queues if queues != before.queues else None
    await ask.client.topics.update(name, wanted, retention, quota)
    return Outcome(f"The settings of {name} are changed.", page_of(name))


def _retention(ask: Ask, before: popmq.Retention) -> popmq.Retention:
    keep, most = ask.duration("keep"), ask.mebibytes("max_mib")
    return popmq.Retention(
        before.keep if keep is None else keep, bool(ask.given("by_age")), before.max_bytes if most is None else most
    )


def _quota(ask: Ask) -> popmq.Quota:
    return popmq.Quota(
        ask.number("send_messages_per_s", most=INT64_MAX) or 0,
        ask.number("send_bytes_per_s", most=INT64_MAX) or 0,
        ask.number("message_bytes") or 0,
        ask.number("pop_messages_per_s", most=INT64_MAX) or 0,
    )


async def permit(ask: Ask) -> Outcome:
    """Pauses a topic, or lets it go on: its permission. Raises InvalidField, TopicNotFound."""
    name, permission = ask.given("name"), ask.given("permission")
    if permission not in get_args(Permission):
        raise wrong("permission", f"{permission!r} is not a permission")
    await ask.client.topics.update(name, permission=cast(Permission, permission))
    return Outcome(f"{name} is {permission} now.", page_of(name))


async def purge(ask: Ask) -> Outcome:
    """Drops all messages, once the name is typed. Raises InvalidField, TopicNotFound."""
    name = ask.given("name")
    ask.confirm(name)
    dropped = await ask.client.topics.purge(name)
    return Outcome(f"{dropped:,} messages of {name} are dropped.", page_of(name))


async def delete(ask: Ask) -> Outcome:
    """Removes the topic, once the name is typed. Raises InvalidField, TopicNotFound."""
    name = ask.given("name")
    ask.confirm(name)
    await ask.client.topics.delete(name)
    return Outcome(f"The topic {name} is deleted.", "/topics")
