"""SendBack: a group that pulls returns messages that it failed to process.

    by queue and offset, or by its number in the retry topic ─▶ read (11) ─┬─ attempts left ─▶ the retry topic, later
                                                                           └─ none left, or `reject` ─▶ %DLQ%group

One message is one send: each has its own result, and a repeat sends it back twice. A message of the retry topic that is
sent back stays in it until the group commits past it. RocketMQ's own way back (36) ends in one topic for all topics of
the group, a queue for each broker, whose entries nobody could number.
"""

from collections.abc import Sequence

from popmq_remoting.errors import BadFormat
from popmq_remoting.messages import properties
from popmq_remoting.messages.stored import StoredMessage
from popmq_server.cluster.brokers import in_lanes
from popmq_server.cluster.catalog.positions import Positions
from popmq_server.cluster.catalog.topics import KnownTopic
from popmq_server.cluster.messages import own
from popmq_server.cluster.messages.dead_letters import Death, Failure, redriven, sent_back
from popmq_server.cluster.popping.dead import DeadLetters
from popmq_server.cluster.pulling.pulls import refuse_lite
from popmq_server.cluster.pulling.reading import Reader
from popmq_server.cluster.pulling.redelivery import Redelivery
from popmq_server.cluster.pulling.retry_topics import RetryTopic, RetryTopics
from popmq_server.cluster.shared import Shared
from popmq_server.contract.commands import Changed, SendBack, SentBack
from popmq_server.errors import Refused, no_queue
from popmq_server.values.records import Group

NO_ATTEMPTS = "no attempts left"
NO_ROOM = "its properties leave no room for another attempt"


class _Found:
    """A message that is sent back: where it is, and what is known of its first place."""

    def __init__(self, broker: str, stored: StoredMessage, number: int, is_retry: bool, now_ms: int) -> None:
        self.broker, self.stored = broker, stored
        self.properties = properties.read(stored.properties)
        self.attempts = stored.reconsume_times + 1 if is_retry else 1
        self.queue = own.number(self.properties, own.ORIGIN_QUEUE) if is_retry else number
        self.offset = own.number(self.properties, own.ORIGIN_OFFSET) if is_retry else stored.queue_offset
        self.first_pop_ms = own.number(self.properties, own.FIRST_POP, now_ms)


class SendBacks:
    """Takes back messages that a pulling group failed to process."""

    def __init__(self, shared: Shared, retries: RetryTopics, redelivery: Redelivery, dead: DeadLetters) -> None:
        self._topics, self._groups, self._layouts = shared.topics, shared.groups, shared.layouts
        self._modes, self._now_ms = shared.modes, shared.now_ms
        self._retries, self._redelivery, self._dead = retries, redelivery, dead
        self._reader = Reader(shared.brokers)

    async def send_back(self, command: SendBack) -> Sequence[Changed | Refused]:
        """One result for each message, in order. Raises Refused for what the request names."""
        topic = await self._topics.get(command.topic)
        group = await self._groups.get(command.group)
        refuse_lite(topic)
        await self._modes.expect(topic, group, "PULL")
        retry = self._retries.of(group, topic)
        results: list[Changed | Refused] = [Changed(0, False)] * len(command.messages)
        seen = set[int]()

        async def one(index: int) -> None:
            message, field = command.messages[index], f"messages[{index}]"
            try:
                if isinstance(message, Refused):
                    raise message
                found = await self._find(topic, retry, message, field)
                if message.retry and message.offset in seen:
                    raise _gone(f"{field}.offset", "the request names this message twice")
                if message.retry:
                    seen.add(message.offset)
                results[index] = await self._returned(command, group, topic, message, found)
            except Refused as refused:
                results[index] = refused

        await in_lanes(range(len(command.messages)), one)
        return results

    async def _find(self, topic: KnownTopic, retry: RetryTopic, message: SentBack, field: str) -> _Found:
        """The message at exactly this place, or Refused."""
        if message.retry:
            if message.queue:
                raise no_queue(retry.itself.name, 1, message.queue, f"{field}.queue")
            place = await self._retries.place(retry)
            if place is None or message.offset < (await self._retries.begins(retry, place))[0]:
                raise _gone(f"{field}.offset", f"entry {message.offset} is not in the retry topic")
            known = retry.itself
        else:
            places = (await self._layouts.of(topic)).places
            if message.queue >= len(places):
                raise no_queue(topic.name, len(places), message.queue, f"{field}.queue")
            place, known = places[message.queue], topic
        stored = await self._reader.at(known, place, message.offset)
        if stored is None or own.is_for_another(properties.read(stored.properties), retry.group.name):
            where = "the retry topic" if message.retry else f"queue {message.queue} of topic {topic.name!r}"
            raise _gone(f"{field}.offset", f"there is no message {message.offset} in {where}")
        return _Found(place.broker, stored, message.queue, message.retry, self._now_ms())

    async def _returned(
        self, command: SendBack, group: Group, topic: KnownTopic, message: SentBack, found: _Found
    ) -> Changed:
        """Stores it for another attempt, or as a dead letter. A consumer that retried by itself says how often."""
        attempts = max(found.attempts, message.attempts)
        death = Death(
            topic.broker_name,
            found.queue,
            found.offset,
            attempts,
            found.first_pop_ms,
            command.client_id,
            message.reason or ("" if message.reject else NO_ATTEMPTS),
            self._now_ms(),
        )
        if message.reject or attempts >= (message.max_attempts or group.max_attempts):
            return await self._buried(group, found, death)
        delay_ms = message.delay_ms if message.delay_ms is not None else group.backoff_ms(attempts)
        visible_ms = self._now_ms() + delay_ms
        failure = Failure(
            found.queue,
            found.offset,
            found.first_pop_ms,
            command.client_id,
            message.reason,
            visible_ms if delay_ms else 0,
        )
        try:
            returned = sent_back(found.stored, found.properties, failure)
        except BadFormat:  # of another program, whose properties leave no room for these
            return await self._buried(group, found, death._replace(reason=NO_ROOM))
        await self._redelivery.to_retry(self._retries.of(group, topic), returned, attempts)
        return Changed(visible_ms, False)

    async def _buried(self, group: Group, found: _Found, death: Death) -> Changed:
        await self._dead.write(found.broker, group.name, found.stored, found.properties, death)
        return Changed(0, True)


class Leftovers:
    """What a group that pulled has left in its retry topic, when it pops from now on."""

    def __init__(self, shared: Shared, positions: Positions, retries: RetryTopics, redelivery: Redelivery) -> None:
        self._positions, self._retries, self._redelivery = positions, retries, redelivery
        self._reader = Reader(shared.brokers)

    async def move(self, retry: RetryTopic) -> None:
        """Sends them to the topic again, each with its attempts. Raises Refused; a repeat goes on.

        What waits for its delay comes into the retry topic later, and is moved by the next such call.
        """
        place = await self._retries.place(retry)
        if place is None:
            return
        at, ends = await self._retries.begins(retry, place)
        while at < ends.most:
            stored, at = await self._reader.some(retry.itself, place, at)
            for message in stored:
                again = redriven(message, properties.read(message.properties), retry.group.name)
                await self._redelivery.to_topic(retry.origin, again, message.reconsume_times)
            await self._positions.put(retry.itself, retry.group.name, {place: at})


def _gone(field: str, why: str) -> Refused:
    return Refused("MESSAGE_NOT_FOUND", why, field=field, action="drop the message: there is nothing to send back")


BY_SEND_BACKS = SendBack.awaited_by(SendBacks.send_back)
