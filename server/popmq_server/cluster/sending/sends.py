"""Send: the messages of a call → requests to brokers → the place of each message, or why it is refused.

    one plain message           waits for the end of this turn of the event loop, and travels with others of its topic
    many plain messages         one queue, in their order, a request for each 4 MiB
    message groups              the queue of each by the layout; the messages of a queue one after the other, and none
                                behind one of its message group that was not stored: a retry of that one would come late
    delayed, half, priority     a request each, LANES of them at once

A broker that surely stored nothing is left out, and the next one is tried; but a message group has one queue, and waits
for its broker. An answer that did not come is not asked for again: the client decides, and its repeat has the same id.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from popmq_remoting import RemotingError, ResponseCode, Route
from popmq_remoting.errors import BrokerRefused, DeadlineOver
from popmq_remoting.messages import offset_ids
from popmq_remoting.requests import sending
from popmq_remoting.requests.sending import HalfPlace, SendOutcome, SendTarget
from popmq_server.cluster.brokers import CALL_S
from popmq_server.cluster.catalog.topics import KnownTopic
from popmq_server.cluster.collecting import Collector, Share, again
from popmq_server.cluster.layout import QueuePlace
from popmq_server.cluster.messages.to_broker import BrokerMessage, SendLimits, to_broker
from popmq_server.cluster.refusals import Asked, refusal
from popmq_server.cluster.sending import gathering, message_groups
from popmq_server.cluster.sending.gathering import Gathered
from popmq_server.cluster.sending.placing import Placing, may_go_elsewhere
from popmq_server.cluster.shared import Shared
from popmq_server.cluster.signed import transactions
from popmq_server.cluster.signed.transactions import SignedHalf
from popmq_server.contract.commands import NewMessage, Place, Send, Sent
from popmq_server.errors import Refused, topic_not_found, unavailable
from popmq_server.values import permission, priority, topic_types
from popmq_server.values.message import Extra

#: Requests of one call that are under way together.
LANES = 32
_NONE = Extra()
Answer = Place | Refused


class Numbered(NamedTuple):
    """A message of a call: its number there, what travels, and its options."""

    number: int
    message: BrokerMessage
    extra: Extra


class Sends:
    """Carries out Send."""

    def __init__(self, shared: Shared) -> None:
        self._brokers, self._topics, self._layouts = shared.brokers, shared.topics, shared.layouts
        self._secrets, self._now_ms = shared.secrets, shared.now_ms
        self._placing = Placing(shared.brokers.cluster.is_silent)
        self._collected = Collector[tuple[KnownTopic, BrokerMessage], Answer](self._planned)
        #: Messages that travelled together with those of other callers.
        self.gathered = 0

    async def send(self, command: Send) -> Sent:
        """Raises Refused if no message can be stored at all; else each has its own result."""
        topic = await self._topics.get(command.topic)
        if topic.settings.is_dead_letter:
            raise topic_not_found(command.topic)
        permission.check_send(topic.settings)
        topic_types.check_types(topic.settings, command.types)
        valid = command.valid
        prepared = _prepared(topic, valid, SendLimits(topic.broker_name, self._now_ms()))
        plain = [each for each in prepared if isinstance(each, BrokerMessage) and each.is_plain]
        if len(plain) < len(prepared):
            return sent(await self._each(topic, valid, prepared))
        if len(plain) == 1:
            return sent([await self._alone(topic, plain[0])])
        return await self._in_a_row(topic, await self._topics.route(topic.name), plain)

    # ── One message, together with those of other callers ────────────────────────────────────────────────────────────

    async def _alone(self, topic: KnownTopic, message: BrokerMessage) -> Answer:
        try:
            return await self._collected.ask((topic, message), self._brokers.until_s())
        except Refused as refused:
            return refused
        except DeadlineOver as late:
            unanswered = refusal(late, Asked("", topic.name))
            unanswered.message = f"no broker of topic {topic.name!r} answered before the deadline"
            return unanswered

    def _planned(self, turn: Sequence[tuple[KnownTopic, BrokerMessage]]) -> Iterator[Share[Answer]]:
        by_topic: dict[str, list[int]] = {}
        for place, (topic, _) in enumerate(turn):
            by_topic.setdefault(topic.broker_name, []).append(place)
        for places in by_topic.values():
            topic = turn[places[-1]][0]
            for each in gathering.planned([turn[place][1] for place in places]):
                self.gathered += len(each.members) if len(each.members) > 1 else 0
                yield Share([places[member] for member in each.members], self._together(topic, each))

    async def _together(self, topic: KnownTopic, gathered: Gathered) -> Sequence[Answer]:
        stored = await self._stored(topic, await self._topics.route(topic.name), gathered)
        return _answers(stored, len(gathered.members))

    # ── Many messages of one call ────────────────────────────────────────────────────────────────────────────────────

    async def _in_a_row(self, topic: KnownTopic, route: Route, messages: Sequence[BrokerMessage]) -> Sent:
        """Sends plain messages in batches, all to one queue while its broker takes them. Raises Refused as `sent`."""
        batches = gathering.planned(messages)
        if len(batches) == 1:
            return await self._batch(topic, route, batches[0], None)
        fixed: QueuePlace | None = None
        places = list[Answer]()
        for each in batches:
            try:
                stored = _answers(await self._batch(topic, route, each, fixed), len(each.members))
            except Refused as refused:
                stored = [refused] * len(each.members)
            places += stored
            if isinstance(stored[0], Place):
                fixed = (await self._layouts.of(topic)).place(topic.name, stored[0].queue)
        return sent(places)

    async def _batch(self, topic: KnownTopic, route: Route, gathered: Gathered, fixed: QueuePlace | None) -> Sent:
        try:
            return await self._stored(topic, route, gathered, fixed)
        except Refused as refused:
            return sent([refused] * len(gathered.members))

    async def _each(
        self, topic: KnownTopic, valid: Sequence[NewMessage], prepared: Sequence[BrokerMessage | Refused]
    ) -> Sequence[Answer]:
        """Sends the messages of a call of which some are not plain, or are refused already."""
        places = [each if isinstance(each, Refused) else Place() for each in prepared]
        numbered = [
            Numbered(number, each, message.extra or _NONE)
            for number, (message, each) in enumerate(zip(valid, prepared, strict=True))
            if isinstance(each, BrokerMessage)
        ]
        if not numbered:
            return places
        route = await self._topics.route(topic.name)
        plain = [each for each in numbered if each.message.is_plain]
        single = [each for each in numbered if not each.message.is_plain and not each.extra.message_group]
        lanes = [self._lane(topic, route, single[start::LANES], places) for start in range(min(LANES, len(single)))]
        if plain:
            lanes.append(self._plain(topic, route, plain, places))
        if grouped := [each for each in numbered if each.extra.message_group]:
            whole = (await self._layouts.of(topic)).places
            by_queue: dict[int, list[Numbered]] = {}
            for each in grouped:
                by_queue.setdefault(message_groups.queue_of(each.extra.message_group, len(whole)), []).append(each)
            lanes += [self._lane(topic, route, each, places, whole[queue]) for queue, each in by_queue.items()]
        await asyncio.gather(*lanes)
        return places

    async def _plain(self, topic: KnownTopic, route: Route, messages: Sequence[Numbered], places: list[Answer]) -> None:
        try:
            stored = _answers(await self._in_a_row(topic, route, [each.message for each in messages]), len(messages))
        except Refused as refused:
            stored = [refused] * len(messages)
        for each, place in zip(messages, stored, strict=True):
            places[each.number] = place

    async def _lane(
        self,
        topic: KnownTopic,
        route: Route,
        messages: Sequence[Numbered],
        places: list[Answer],
        fixed: QueuePlace | None = None,
    ) -> None:
        """Sends them one after the other; of a message group, none behind one that may be sent again."""
        stopped: dict[str, Refused] = {}
        for number, message, extra in messages:
            if (earlier := stopped.get(extra.message_group)) is not None:
                places[number] = again(earlier)
                continue
            (gathered,) = gathering.planned([message])
            try:
                (places[number],) = _answers(await self._stored(topic, route, gathered, fixed, extra), 1)
            except Refused as refused:
                places[number] = refused
                if extra.message_group and refused.retryable:
                    stopped[extra.message_group] = refused

    # ── One request ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _stored(
        self,
        topic: KnownTopic,
        route: Route,
        gathered: Gathered,
        fixed: QueuePlace | None = None,
        extra: Extra = _NONE,
    ) -> Sent:
        """Sends one request. `fixed`: it must be this queue. Raises Refused if none of its messages was stored."""
        last = unavailable(f"no broker of topic {topic.name!r} can be written to")
        until_s = self._brokers.until_s()
        for place in [fixed] if fixed else self._placing.places(route):
            asked, queue_id = Asked(place.broker, topic.name), place.queue_id
            if topic.settings.type == "PRIORITY":
                queue_id = priority.queue_of(extra.priority, route.queues[place.broker].write)
            # Before the send: once messages are stored, the answer must name their places.
            number = await self._layouts.number(topic, place.broker, queue_id)
            target = SendTarget(topic.broker_name, topic.broker_name, queue_id, place.broker)
            try:
                outcome = await self._brokers.tried(asked, gathered.request(target), sending.sent, until_s)
                if outcome.code != ResponseCode.SUCCESS:
                    raise BrokerRefused(outcome.code, "stored, but not as safely as asked for", place.broker)
                return self._places(topic, gathered, outcome, QueuePlace(place.broker, number), extra)
            except RemotingError as error:
                last = refusal(error, asked)
                if _is_of_one(error) and len(gathered.members) > 1:
                    return await self._singly(topic, route, gathered, place)
                if not may_go_elsewhere(error):
                    break
                self._placing.failed(place.broker)
        raise last

    async def _singly(self, topic: KnownTopic, route: Route, gathered: Gathered, place: QueuePlace) -> Sent:
        """Sends each message of a batch alone: the one code of the batch is about one of its messages."""
        found = list[Answer]()
        for message in gathered.messages:
            (alone,) = gathering.planned([message])
            try:
                found += _answers(await self._stored(topic, route, alone, place), 1)
            except Refused as refused:
                found.append(refused)
        return sent(found)

    def _places(
        self, topic: KnownTopic, gathered: Gathered, outcome: SendOutcome, number: QueuePlace, extra: Extra
    ) -> Sent:
        """`number`: the broker, and the number of the queue in the layout."""
        if extra.transaction:
            half = HalfPlace(
                topic.broker_name,
                topic.broker_name,
                gathered.messages[0].properties["UNIQ_KEY"],
                outcome.transaction_id,
                outcome.queue_offset,
                offset_ids.read(outcome.offset_ids[0]).commit_log_offset,
            )
            signed = transactions.write(self._secrets, SignedHalf(number.broker, half, False))
            return Sent(0, 0, False, (Place(transaction_id=signed),))
        if extra.due_ms or extra.delay_ms:
            return Sent(0, 0, False, (Place(recall_handle=outcome.recall_handle),))
        gathered.check(outcome)
        return Sent(number.queue_id, outcome.queue_offset, False)

    async def close(self) -> None:
        """Waits for the requests that are under way, at most as long as a call takes."""
        await self._collected.close(CALL_S)


def _prepared(
    topic: KnownTopic, messages: Sequence[NewMessage], limits: SendLimits
) -> Sequence[BrokerMessage | Refused]:
    """What travels of each message, or why it is refused."""
    found = list[BrokerMessage | Refused]()
    without = topic_types.refusal(topic.settings, _NONE)
    for message in messages:
        why = without if message.extra is None else topic_types.refusal(topic.settings, message.extra)
        try:
            found.append(why or to_broker(message, limits))
        except Refused as refused:
            found.append(refused)
    return found


def _is_of_one(error: RemotingError) -> bool:
    return isinstance(error, BrokerRefused) and error.code == ResponseCode.MESSAGE_ILLEGAL


def _answers(stored: Sent, count: int) -> Sequence[Answer]:
    """The place of each message that was sent, or why it is refused."""
    return stored.places or [Place(stored.queue, stored.first + step) for step in range(count)]


def sent(places: Sequence[Answer]) -> Sent:
    """The answer of a Send. Raises the first refusal if nothing was stored, and the same request may succeed later."""
    refusals = [place for place in places if isinstance(place, Refused)]
    if refusals and len(refusals) == len(places) and all(refused.retryable for refused in refusals):
        raise refusals[0]
    first = places[0] if places else Place()
    if not isinstance(first, Refused):
        following = [Place(first.queue, first.offset + step) for step in range(len(places))]
        if list(places) == following:
            return Sent(first.queue, first.offset, False)
    return Sent(0, 0, False, tuple(places))


BY_SENDS = Send.awaited_by(Sends.send)
