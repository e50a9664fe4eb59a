"""Redrive: dead letters of a group are stored once more, for this group alone.

    %DLQ%group, a queue at each broker ─▶ read (11; by id 12) ─▶ the group pops   the topic again, named for the group
                                                                 the group pulls  its retry topic
                                                                 (pulling/redelivery.py), attempts from 0

Dead letters stay: no broker deletes one message. A redrive of all of them begins behind the last one that such a
redrive took: the position of the group of readers in the dead-letter topic says where. A redrive that chooses moves no
position, so a later one may deliver the same messages again.
"""

import shlex
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from popmq_remoting.errors import BadFormat
from popmq_remoting.messages import properties
from popmq_remoting.messages.stored import StoredMessage
from popmq_remoting.requests import popping, pulling
from popmq_server.cluster import names
from popmq_server.cluster.brokers import in_lanes
from popmq_server.cluster.catalog.positions import Positions, position
from popmq_server.cluster.catalog.topics import KnownTopic
from popmq_server.cluster.layout import QueuePlace
from popmq_server.cluster.messages import own
from popmq_server.cluster.messages.dead_letters import Failure as Origin
from popmq_server.cluster.messages.dead_letters import redriven, sent_back
from popmq_server.cluster.messages.to_broker import BrokerMessage
from popmq_server.cluster.pulling.reading import Reader
from popmq_server.cluster.pulling.redelivery import Redelivery
from popmq_server.cluster.pulling.retry_topics import RetryTopics
from popmq_server.cluster.refusals import Asked
from popmq_server.cluster.shared import Shared
from popmq_server.contract.commands import Failure, Redrive, Redriven
from popmq_server.errors import Refused, invalid
from popmq_server.values import reasons
from popmq_server.values.message import dead_letter_topic
from popmq_server.values.records import Group

#: Failures that an answer names.
FAILURES_MAX = 4096
#: Dead letters that are read, and then redriven together.
PIECE = 32
#: All times, for an index.
_LAST_MS = (1 << 62) - 1
_REASON = "redriven"


class _Letter(NamedTuple):
    """A dead letter, and what its properties say."""

    stored: StoredMessage
    said: Mapping[str, str]

    @property
    def message_id(self) -> str:
        return self.said.get("UNIQ_KEY") or self.stored.offset_id

    @property
    def origin(self) -> str:
        """The topic that the message died in, as PopMQ calls it; "" if the program that stored it did not say."""
        return names.shown(self.said.get("DLQ_ORIGIN_TOPIC", ""))


class Redrives:
    """Redrives dead letters."""

    def __init__(self, shared: Shared, positions: Positions, retries: RetryTopics, redelivery: Redelivery) -> None:
        self._brokers, self._topics, self._groups = shared.brokers, shared.topics, shared.groups
        self._layouts, self._modes, self._now_ms = shared.layouts, shared.modes, shared.now_ms
        self._positions, self._retries, self._redelivery = positions, retries, redelivery
        self._reader = Reader(shared.brokers)

    async def redrive(self, command: Redrive) -> Redriven:
        """Raises Refused; UNAVAILABLE where a broker does not answer: a repeat of the call goes on."""
        if not command.group:
            raise Refused(
                "UNSUPPORTED",
                "half messages that are given up stay at their brokers, and gateways do not commit them",
                field="group",
                action="name a group, or let the operator resume them with RocketMQ's mqadmin",
            )
        group = await self._groups.get(command.group)
        done = Redriven({}, [])
        try:
            dead_topic = await self._topics.get(dead_letter_topic(group.name))
        except Refused as refused:
            if refused.code != "TOPIC_NOT_FOUND":
                raise
            _add_missing(done, command)
            return done
        places = (await self._layouts.of(dead_topic)).places
        if not (command.offsets or command.message_ids):
            for place in places:
                await self._all(command, group, dead_topic, place, done)
            return done
        if command.offsets and len(places) > 1:
            raise invalid(
                f"the dead letters of group {group.name!r} are in {len(places)} queues, each with offsets of its own",
                field="offsets",
                action="name them by their message ids",
            )
        chosen = await self._at(dead_topic, places, command.offsets, done)
        chosen += await self._with_ids(dead_topic, places, command, done)
        await self._piece(command, group, chosen, done)
        return done

    # ── Which dead letters ───────────────────────────────────────────────────────────────────────────────────────────

    async def _all(
        self, command: Redrive, group: Group, dead_topic: KnownTopic, place: QueuePlace, done: Redriven
    ) -> None:
        """Redrives those of one queue that were there at the start, from the kept position on."""
        (committed,) = await self._positions.committed(dead_topic, "", [place])
        (ends,) = await self._positions.ends(dead_topic, [place])
        (at,) = position([committed], [ends]) or [ends.least]
        chooses = bool(command.topic or command.exception) or command.reason is not None
        while at < ends.most:
            found, behind = await self._reader.some(dead_topic, place, at, PIECE)
            found = [each for each in found if each.queue_offset < ends.most]
            await self._piece(command, group, [_letter(each) for each in found], done)
            at = min(behind, ends.most)
            if not chooses:
                await self._positions.put(dead_topic, "", {place: at})

    async def _at(
        self, dead_topic: KnownTopic, places: Iterable[QueuePlace], offsets: Iterable[int], done: Redriven
    ) -> list[_Letter]:
        found = list[_Letter]()
        for place in places:
            for offset in dict.fromkeys(offsets):
                stored = await self._reader.at(dead_topic, place, offset)
                if stored is None:
                    _fail(done, offset, "", _not_there(dead_topic.name, offset, "does not exist"))
                else:
                    found.append(_letter(stored))
        return found

    async def _with_ids(
        self, dead_topic: KnownTopic, places: Iterable[QueuePlace], command: Redrive, done: Redriven
    ) -> list[_Letter]:
        """The newest of each id: the others were redriven, or the message would not have died again."""
        found = dict[str, StoredMessage]()

        async def one(message_id: str) -> None:
            for place in places:
                request = pulling.query_message(dead_topic.broker_name, message_id, PIECE, 0, _LAST_MS, unique=True)
                asked = Asked(place.broker, dead_topic.name)
                for each in await self._brokers.call(asked, request, popping.messages):
                    if each.topic != dead_topic.broker_name or _letter(each).message_id != message_id:
                        continue
                    if message_id not in found or each.stored_ms >= found[message_id].stored_ms:
                        found[message_id] = each

        await in_lanes(sorted(command.message_ids), one)
        for message_id in sorted(command.message_ids - found.keys()):
            _fail(done, -1, message_id, _no_dead_letter(message_id, command.group))
        return [_letter(found[message_id]) for message_id in sorted(found)]

    # ── Their delivery ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _piece(self, command: Redrive, group: Group, those: list[_Letter], done: Redriven) -> None:
        """Redrives those that have the topic and reason of the command. Raises Refused if a broker does not answer."""
        named = bool(command.offsets or command.message_ids)
        wanted = list[_Letter]()
        for dead_letter in those:
            if other := _other_than(command, dead_letter):
                if named:
                    _fail(done, dead_letter.stored.queue_offset, dead_letter.message_id, _unwanted(dead_letter, other))
                continue
            wanted.append(dead_letter)
        fifo = [dead_letter for dead_letter in wanted if "__SHARDINGKEY" in dead_letter.said]

        async def one(dead_letter: _Letter) -> None:
            try:
                await self._deliver(group, dead_letter)
            except Refused as refused:
                if refused.retryable:
                    raise
                _fail(done, dead_letter.stored.queue_offset, dead_letter.message_id, refused)
            else:
                done.topics[dead_letter.origin] = done.topics.get(dead_letter.origin, 0) + 1

        for dead_letter in fifo:  # one after the other, in their order
            await one(dead_letter)
        await in_lanes([dead_letter for dead_letter in wanted if "__SHARDINGKEY" not in dead_letter.said], one)

    async def _deliver(self, group: Group, dead_letter: _Letter) -> None:
        if not dead_letter.origin:
            raise _unwanted(dead_letter, "names no topic that it is from")
        topic = await self._topics.get(dead_letter.origin)
        pulls = (await self._modes.of(topic, group.name)).pulls
        try:
            message = self._again(dead_letter) if pulls else redriven(dead_letter.stored, dead_letter.said, group.name)
        except BadFormat as bad:
            raise _unwanted(dead_letter, f"cannot be stored again: {bad}") from None
        if pulls:
            await self._redelivery.to_retry(self._retries.of(group, topic), message, 0)
        else:
            await self._redelivery.to_topic(topic, message, 0)

    def _again(self, dead_letter: _Letter) -> BrokerMessage:
        queue, offset = (own.number(dead_letter.said, name) for name in (own.ORIGIN_QUEUE, own.ORIGIN_OFFSET))
        return sent_back(dead_letter.stored, dead_letter.said, Origin(queue, offset, self._now_ms(), "", _REASON, 0))


def _letter(stored: StoredMessage) -> _Letter:
    return _Letter(stored, properties.read(stored.properties))


def _other_than(command: Redrive, dead_letter: _Letter) -> str:
    """Why a command does not want this dead letter; "" if it does."""
    if command.topic not in ("", dead_letter.origin):
        return f"came from topic {dead_letter.origin!r}"
    return reasons.other_than(dead_letter.said.get(own.REASON, ""), command.reason, command.exception)


def _add_missing(done: Redriven, command: Redrive) -> None:
    """Adds a failure for each one that the command names: the group has no dead letters at all."""
    for offset in command.offsets:
        _fail(done, offset, "", _not_there(dead_letter_topic(command.group), offset, "does not exist"))
    for message_id in sorted(command.message_ids):
        _fail(done, -1, message_id, _no_dead_letter(message_id, command.group))


def _fail(done: Redriven, offset: int, message_id: str, why: Refused) -> None:
    if len(done.failures) < FAILURES_MAX:
        done.failures.append(Failure(offset, message_id, why))


def _unwanted(dead_letter: _Letter, how: str) -> Refused:
    return _not_there(names.shown(dead_letter.stored.topic), dead_letter.stored.queue_offset, how)


def _not_there(topic: str, offset: int, how: str) -> Refused:
    return Refused(
        "MESSAGE_NOT_FOUND",
        f"the dead letter at offset {offset} of {topic!r} {how}",
        field="offsets",
        action=f"see: popmq dlq show {topic.removeprefix('%DLQ%')}",
    )


def _no_dead_letter(message_id: str, group: str) -> Refused:
    return Refused(
        "MESSAGE_NOT_FOUND",
        f"group {group!r} has no dead letter with the id {message_id!r}",
        field="message_ids",
        action=f"see: popmq dlq show {shlex.quote(group)}",
    )


BY_REDRIVES = Redrive.awaited_by(Redrives.redrive)
