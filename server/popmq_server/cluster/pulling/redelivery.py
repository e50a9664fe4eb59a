"""A stored message, stored once more for one group: in its retry topic, or in the topic itself.

    retry topic    of a group that pulls (retry_topics.py): nobody else reads it
    topic          for a group that pops, as brokers let nobody write to what they retry. The message names the group,
                   and gateways finish it unseen for all others; native clients of other groups do get it

The header has the attempts so far. What is stored less safely than its broker is set to is not OK: the caller repeats,
and the message may come twice.
"""

from popmq_remoting import RemotingError, Response, ResponseCode
from popmq_remoting.errors import BrokerRefused
from popmq_remoting.requests import sending
from popmq_remoting.requests.sending import SendTarget
from popmq_server.cluster.catalog.topics import KnownTopic
from popmq_server.cluster.layout import QueuePlace
from popmq_server.cluster.messages import own
from popmq_server.cluster.messages.to_broker import BrokerMessage
from popmq_server.cluster.pulling.retry_topics import RetryTopic, RetryTopics
from popmq_server.cluster.refusals import Asked, refusal
from popmq_server.cluster.sending import message_groups
from popmq_server.cluster.sending.placing import Placing, may_go_elsewhere
from popmq_server.cluster.shared import Shared
from popmq_server.errors import Refused, unavailable
from popmq_server.values import priority


class Redelivery:
    """Stores messages once more, for one group."""

    def __init__(self, shared: Shared, retries: RetryTopics) -> None:
        self._brokers, self._topics, self._layouts = shared.brokers, shared.topics, shared.layouts
        self._retries, self._placing = retries, Placing(shared.brokers.cluster.is_silent)

    async def to_retry(self, retry: RetryTopic, message: BrokerMessage, attempts: int) -> None:
        """Raises Refused."""
        place = await self._retries.made(retry)
        try:
            await self._send(retry.itself, place, message, attempts)
        except Refused as refused:
            if refused.code != "TOPIC_NOT_FOUND":
                raise
            await self._send(retry.itself, await self._retries.make(retry), message, attempts)

    async def to_topic(self, topic: KnownTopic, message: BrokerMessage, attempts: int) -> None:
        """In the queue of its message group, or any queue of its priority. Raises Refused."""
        last = unavailable(f"no broker of topic {topic.name!r} can be written to")
        route = await self._topics.route(topic.name)
        message_group = message.properties.get("__SHARDINGKEY", "")
        if topic.is_fifo and message_group:
            places = (await self._layouts.of(topic)).places
            return await self._send(
                topic, places[message_groups.queue_of(message_group, len(places))], message, attempts
            )
        for place in self._placing.places(route):
            if topic.settings.type == "PRIORITY":
                wanted = own.number(message.properties, "_SYS_MSG_PRIORITY_")
                place = QueuePlace(place.broker, priority.queue_of(wanted, route.queues[place.broker].write))
            try:
                return await self._tried(topic, place, message, attempts)
            except RemotingError as error:
                last = refusal(error, Asked(place.broker, topic.name))
                if not may_go_elsewhere(error):
                    break
                self._placing.failed(place.broker)
        raise last

    async def _send(self, topic: KnownTopic, place: QueuePlace, message: BrokerMessage, attempts: int) -> None:
        try:
            await self._tried(topic, place, message, attempts)
        except RemotingError as error:
            raise refusal(error, Asked(place.broker, topic.name)) from error

    async def _tried(self, topic: KnownTopic, place: QueuePlace, message: BrokerMessage, attempts: int) -> None:
        target = SendTarget(topic.broker_name, topic.broker_name, place.queue_id, place.broker)
        request = sending.send(
            target, message.body, message.properties, message.born_ms, message.sys_flag, reconsume_times=attempts
        )
        await self._brokers.tried(Asked(place.broker, topic.name), request, _stored, self._brokers.until_s())


def _stored(answer: Response) -> None:
    if sending.sent(answer).code != ResponseCode.SUCCESS:
        raise BrokerRefused(answer.code, "stored, but not as safely as asked for")
