"""Lists and numbers of topics and groups, from what brokers count (counts.py).

    topic    its settings, and the ends of its queues, which have the numbers of its layout
    group    for each topic that it has read:
               ready     behind the last message of the topic; what is leased counts as read, unless it is a retry
               retry     behind the last message of what it has to read again
               dead      in its dead-letter topic

All else of a group, such as what is in flight, RocketMQ does not know.
"""

from collections.abc import Iterable
from typing import NamedTuple

from popmq_remoting.errors import RemotingError
from popmq_remoting.names import RETRY_V1, RETRY_V2, dead_letter_topic, pop_topic
from popmq_remoting.requests import bodies, name_server
from popmq_server.cluster import layout, names
from popmq_server.cluster.brokers import in_lanes
from popmq_server.cluster.catalog.positions import Ends
from popmq_server.cluster.layout import QueuePlace
from popmq_server.cluster.numbers.counts import LISTED_S, NAMED_S, Counts, GroupTable
from popmq_server.cluster.numbers.disks import fullest
from popmq_server.cluster.numbers.topic_rows import TopicRows, topic_numbers
from popmq_server.cluster.popping.waits import Waits
from popmq_server.cluster.pulling.retry_topics import RetryTopics
from popmq_server.cluster.refusals import NAME_SERVERS, Asked, refusal
from popmq_server.cluster.remembered import Remembered
from popmq_server.cluster.shared import Shared
from popmq_server.contract.commands import queries
from popmq_server.contract.commands.numbers import GroupNumbers, Rows, StoreNumbers, TopicNumbers
from popmq_server.errors import topic_not_found
from popmq_server.values.message import RETRY_PREFIX
from popmq_server.values.records import Group, Subscription


class _Pair(NamedTuple):
    """A group in a topic, as PopMQ calls both; they are sorted so."""

    topic: str
    group: str


class Listings:
    """Lists topics, groups and subscriptions with their numbers."""

    def __init__(self, shared: Shared, retries: RetryTopics, waits: Waits) -> None:
        self._brokers, self._topics, self._groups = shared.brokers, shared.topics, shared.groups
        self._layouts, self._modes, self._retries, self._waits = shared.layouts, shared.modes, retries, waits
        self._counts = Counts(shared.brokers)
        self._kept = Remembered[str, dict[str, str]](self._read_kept)
        self._rows = TopicRows(self._counts, self._kept)
        shared.topics.on_change = self._changed

    def _changed(self) -> None:
        """Numbers may be old, but whoever made or deleted a topic here sees so in the next list."""
        self._counts.forget_topics()
        for is_fifo in (False, True):
            self._kept.forget(layout.namespace(is_fifo))

    # ── Topics ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def topics(self, query: queries.Topics) -> Rows[TopicNumbers]:
        """Raises Refused TOPIC_NOT_FOUND for one that is named, UNAVAILABLE."""
        if query.name.startswith(RETRY_PREFIX):
            return Rows([await self._retry_topic(query.name)])
        if query.name:
            topic = await self._topics.get(query.name)
            ends = await self._counts.ends(topic.broker_name, NAMED_S)
            if not ends:  # another gateway deleted it
                self._topics.forget(query.name)
                raise topic_not_found(query.name)
            return Rows([topic_numbers(topic.settings, await self._layouts.of(topic), ends)])
        table = await self._counts.topics()
        self._rows.only(table)
        page, after = _page([*table], query.after, query.rows_max)
        found: dict[str, TopicNumbers] = {}

        async def one(name: str) -> None:
            found[name] = await self._rows.row(name, table[name])

        await in_lanes(page, one)
        return Rows([found[name] for name in page], after)

    async def _read_kept(self, namespace: str) -> dict[str, str]:
        """All layouts of a namespace, as texts."""
        ask = name_server.list_kv(namespace)
        try:
            answer = await self._brokers.cluster.name_servers.ask(ask, self._brokers.until_s())
            return {name: str(text) for name, text in bodies.table(answer, "table").items()} if not answer.code else {}
        except RemotingError as error:
            raise refusal(error, Asked(NAME_SERVERS)) from error

    async def _retry_topic(self, name: str) -> TopicNumbers:
        """What a group that pulls has to read again: a topic of one queue."""
        retry = await self._retries.named(name)
        place = await self._retries.place(retry)
        first, ends = await self._retries.begins(retry, place) if place is not None else (0, Ends(0, 0))
        return TopicNumbers(retry.itself.settings, ends.most - first, [(0, first, ends.most)], None, None, None)

    # ── Groups ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def groups(self, query: queries.Groups) -> Rows[GroupNumbers]:
        """Raises Refused TOPIC_NOT_FOUND, GROUP_NOT_FOUND for what is named, UNAVAILABLE."""
        if query.topic:
            await self._topics.get(query.topic)
        if query.group:
            await self._groups.get(query.group)
        within_s = NAMED_S if query.topic or query.group else LISTED_S
        read, shown = await self._read_by(await self._named(query), within_s)
        if query.topic and query.group:
            pairs, after = [_Pair(query.topic, query.group)], ""
        else:
            known = sorted(_Pair(topic, group) for group, listed in shown.items() for topic in listed)
            wanted = [pair for pair in known if query.topic in ("", pair.topic)]
            keys, after = _page([" ".join(pair) for pair in wanted], query.after, query.rows_max)
            pairs = [_Pair(*key.split(" ")) for key in keys]
        found: dict[_Pair, GroupNumbers] = {}

        async def one(pair: _Pair) -> None:
            found[pair] = await self._group_numbers(pair, read[pair.group], within_s)

        await in_lanes(pairs, one)
        return Rows([found[pair] for pair in pairs], after)

    async def _named(self, query: queries.Groups) -> list[str]:
        """The groups that a query is about."""
        if query.group:
            return [query.group]
        every = await self._groups.all()
        if not query.topic:
            return [*every]
        return sorted({*map(names.shown, await self._counts.readers(names.broker_topic(query.topic)))} & {*every})

    async def _read_by(self, groups: list[str], within_s: float) -> tuple[dict[str, GroupTable], dict[str, list[str]]]:
        """(where each group is in the topics that it has read, those of them that are shown)."""
        read, shown = dict[str, GroupTable](), dict[str, list[str]]()

        async def one(group: str) -> None:
            read[group] = await self._counts.behind(names.broker_group(group), within_s)
            shown[group] = _shown(read[group])

        await in_lanes(groups, one)
        return read, shown

    async def _group_numbers(self, pair: _Pair, read: GroupTable, within_s: float) -> GroupNumbers:
        topic, group = names.broker_topic(pair.topic), names.broker_group(pair.group)
        mode = (await self._modes.each()).get((topic, group), Subscription())
        retries = [pop_topic(kind, topic, group) for kind in (RETRY_V1, RETRY_V2)]
        again = [each for each in retries if each in read]
        if mode.pulls:
            again.append(names.retry_topic(pair.group, pair.topic))
        dead_letters = await self._counts.ends(dead_letter_topic(group), within_s)
        return GroupNumbers(
            group=pair.group,
            topic=pair.topic,
            ready=await self._left(topic, read, within_s, ()) if topic in read else 0,
            in_flight=None,
            retry=sum([await self._left(each, read, within_s, _brokers(read.get(each, {}))) for each in again]),
            backoff=None,
            dead=sum(ends.most - ends.least for ends in dead_letters.values()),
            acked=None,
            dropped=None,
            quarantined=None,
            oldest_ms=None,
            owners=0,
            sessions=None,
            filtered=None,
            mode=mode.mode,
            delayed=None,
            read_ms=None,
            bytes_behind=None,
            dead_blocked=None,
            parked=self._waits.of(topic, group),
        )

    async def _left(self, topic: str, read: GroupTable, within_s: float, brokers: Iterable[str]) -> int:
        """The messages behind a group's position, or all of a queue where it has none. `brokers`: as of Counts.ends."""
        at = read.get(topic, {})
        ends = await self._counts.ends(topic, within_s, brokers)
        return sum(max(0, end.most - max(end.least, at.get(place, 0))) for place, end in ends.items())

    async def settings(self, query: queries.GroupSettings) -> Rows[Group]:
        """Raises Refused GROUP_NOT_FOUND for one that is named, UNAVAILABLE."""
        if query.name:
            return Rows([await self._groups.get(query.name)])
        every = await self._groups.all()
        page, after = _page(sorted(every), query.after, query.rows_max)
        return Rows([every[name] for name in page], after)

    async def subscriptions(self, query: queries.Subscriptions) -> Rows[tuple[str, Subscription]]:
        """Each topic that the group has read, or whose mode was set. Raises Refused GROUP_NOT_FOUND, UNAVAILABLE."""
        await self._groups.get(query.group)
        group = names.broker_group(query.group)
        modes = {topic: mode for (topic, named), mode in (await self._modes.each()).items() if named == group}
        read = await self._counts.behind(group, NAMED_S)
        page, after = _page(_shown({*modes, *read}), query.after, query.rows_max)
        return Rows([(name, modes.get(names.broker_topic(name), Subscription())) for name in page], after)

    # ── The rest ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def store(self, query: queries.StoreSize) -> StoreNumbers:
        """Raises Refused."""
        return await fullest(self._brokers)

    async def held(self, query: queries.HeldBy) -> None:
        """None: brokers do not tell which client has a lease."""

    def close(self) -> None:
        """Ends what is being read."""
        self._counts.close()
        self._kept.close()


def _page(rows: list[str], after: str, rows_max: int) -> tuple[list[str], str]:
    """The first rows of a page, and the `after` of the next page."""
    left = [row for row in rows if row > after] if after else rows
    if not rows_max or len(left) <= rows_max:
        return left, ""
    return left[:rows_max], left[rows_max - 1]


def _shown(topics: Iterable[str]) -> list[str]:
    """The topics of users, as PopMQ calls them, sorted."""
    return names.shown_topics(topics)


def _brokers(places: Iterable[QueuePlace]) -> set[str]:
    return {place.broker for place in places}


BY_LISTINGS = (
    queries.Topics.awaited_by(Listings.topics)
    | queries.Groups.awaited_by(Listings.groups)
    | queries.GroupSettings.awaited_by(Listings.settings)
    | queries.Subscriptions.awaited_by(Listings.subscriptions)
    | queries.StoreSize.awaited_by(Listings.store)
    | queries.HeldBy.awaited_by(Listings.held)
)
