"""LookUp: messages of a topic by id or key, the newest first, from the indexes of all its brokers (12).

    a broker's newest ANSWER_MAX ─▶ compared again: an index knows hashes ─▶ older ones, until there are enough
    all brokers ─▶ merged by store time

An index has the times of messages to a second. How far back it reaches is the broker's to say (`fileReservedTime`).
"""

import asyncio
from typing import NamedTuple

from popmq_remoting import Response, ResponseCode
from popmq_remoting.messages import properties, stored
from popmq_remoting.messages.stored import StoredMessage
from popmq_remoting.requests import pulling
from popmq_server.cluster.catalog.topics import KnownTopic
from popmq_server.cluster.messages.from_broker import message_bytes
from popmq_server.cluster.refusals import Asked
from popmq_server.cluster.shared import Shared
from popmq_server.contract.commands import LookedUp, LookUp, ReadRow

#: Messages of one answer: what brokers give at most for a key, and for an id, by default.
ANSWER_MAX, IDS_MAX = 64, 32
#: Answers of one broker, after which the search says that there may be more.
ANSWERS_MAX = 64
_LAST_MS = (1 << 62) - 1
_SECOND_MS = 1_000


class _Hits(NamedTuple):
    """What a broker has, the newest first. `more`: there may be older ones."""

    messages: list[StoredMessage]
    more: bool


class LookUps:
    """Looks messages up at all brokers of a topic."""

    def __init__(self, shared: Shared) -> None:
        self._brokers, self._topics, self._layouts = shared.brokers, shared.topics, shared.layouts

    async def look_up(self, query: LookUp) -> LookedUp:
        """Raises Refused; UNAVAILABLE if a broker does not answer."""
        topic = await self._topics.get(query.topic)
        route = await self._topics.route(query.topic)
        brokers = sorted(route.queues)
        found = await asyncio.gather(*(self._at(broker, topic, query) for broker in brokers))
        hits = [(broker, message) for broker, each in zip(brokers, found, strict=True) for message in each.messages]
        hits.sort(key=lambda hit: (hit[1].stored_ms, hit[0], hit[1].queue_id, hit[1].queue_offset), reverse=True)
        rows, bytes_left = list[ReadRow](), query.bytes_max
        for broker, message in hits:
            data = message_bytes(message, properties.read(message.properties))
            if len(rows) == query.messages_max or (rows and len(data) > bytes_left):
                return LookedUp(rows, True)
            bytes_left -= len(data)
            number = await self._layouts.number(topic, broker, message.queue_id)
            rows.append((data, message.stored_ms, number, message.queue_offset, 0))
        return LookedUp(rows, any(each.more for each in found))

    async def _at(self, broker: str, topic: KnownTopic, query: LookUp) -> _Hits:
        """What one broker has: if it can, one message more than is asked for, which shows that there are more."""
        begin_ms = max(0, query.from_ms - _SECOND_MS)
        end_ms = query.until_ms + _SECOND_MS if query.until_ms else _LAST_MS
        found, seen, missed = dict[tuple[int, int], StoredMessage](), set[int](), False
        for _ in range(ANSWERS_MAX):
            request = pulling.query_message(
                topic.broker_name,
                query.message_id or query.key,
                ANSWER_MAX,
                begin_ms,
                end_ms,
                unique=bool(query.message_id),
            )
            answer = await self._brokers.call(Asked(broker, topic.name), request, _messages)
            found |= {(each.queue_id, each.queue_offset): each for each in answer if _is_meant(each, topic, query)}
            oldest_ms = min((each.stored_ms for each in answer), default=0)
            if len(answer) < (IDS_MAX if query.message_id else ANSWER_MAX) or oldest_ms < query.from_ms:
                return _Hits(list(found.values()), missed)
            if len(found) > query.messages_max:
                break
            new = {each.commit_log_offset for each in answer} - seen
            seen |= new
            # An index knows seconds. If one second has more messages than an answer holds, nobody can read the others.
            missed = missed or not new
            end_ms = oldest_ms if new else oldest_ms - _SECOND_MS
        return _Hits(list(found.values()), True)


def _messages(answer: Response) -> list[StoredMessage]:
    return [] if answer.code == ResponseCode.QUERY_NOT_FOUND else stored.read_all(answer.expect().body)


def _is_meant(message: StoredMessage, topic: KnownTopic, query: LookUp) -> bool:
    """Whether a message has the id or key itself, not only its hash, and was stored in the query's time."""
    in_time = query.from_ms <= message.stored_ms and (not query.until_ms or message.stored_ms <= query.until_ms)
    if not in_time or message.topic != topic.broker_name:
        return False
    said = properties.read(message.properties)
    if query.message_id:
        return said.get("UNIQ_KEY", "") == query.message_id
    return query.key in said.get("KEYS", "").split(" ")


BY_LOOK_UPS = LookUp.awaited_by(LookUps.look_up)
