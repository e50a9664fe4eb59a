"""Dead letters: POP never makes one, so whoever receives a message for the last time has to.

    stored at the broker that has the message, in the group's dead-letter topic ─▶ then acked

A crash in between makes a second dead letter, never none. The topic is made when a broker lacks it.
"""

from collections.abc import Callable, Mapping

from popmq_remoting.codes import Permission
from popmq_remoting.errors import BadFormat
from popmq_remoting.messages.stored import StoredMessage
from popmq_remoting.names import dead_letter_topic
from popmq_remoting.requests import popping, pulling, sending, topics
from popmq_remoting.requests.sending import SendTarget
from popmq_remoting.requests.topics import TopicConfig
from popmq_server.cluster import names
from popmq_server.cluster.brokers import Brokers, succeeded
from popmq_server.cluster.messages import own
from popmq_server.cluster.messages.dead_letters import Death, dead_letter
from popmq_server.cluster.refusals import Asked
from popmq_server.cluster.signed.handles import SignedDelivery
from popmq_server.errors import Refused

#: The reason of a message that was delivered as often as its group allows.
USED_UP = "no attempts are left"


class DeadLetters:
    """Moves messages without attempts left to the dead-letter topic."""

    def __init__(self, brokers: Brokers, now_ms: Callable[[], int]) -> None:
        self._brokers, self._now_ms = brokers, now_ms
        self.written = 0

    async def bury(
        self,
        delivery: SignedDelivery,
        group: str,
        stored: StoredMessage,
        properties: dict[str, str],
        *,
        attempts: int,
        reason: str,
        client: str = "",
    ) -> None:
        """Writes the dead letter, then acks the delivery. `group`: as PopMQ calls it. Raises Refused."""
        handle, known = delivery.handle, names.broker_group(group)
        death = Death(
            delivery.topic,
            handle.queue_id,
            handle.queue_offset,
            attempts,
            own.number(properties, "1ST_POP_TIME"),
            client,
            reason,
            self._now_ms(),
        )
        await self.write(handle.broker, group, stored, properties, death)
        asked = Asked(handle.broker, group=group)
        await self._brokers.call(asked, popping.ack(delivery.topic, known, handle), succeeded)

    async def write(
        self, broker: str, group: str, stored: StoredMessage, properties: Mapping[str, str], death: Death
    ) -> None:
        """Writes the dead letter at the broker that has the message. Raises Refused."""
        known, asked = names.broker_group(group), Asked(broker, group=group)
        try:
            buried = dead_letter(stored, properties, death)
        except BadFormat:  # no room for the origin: the broker moves it
            moved = pulling.send_back(known, death.topic, stored, pulling.DEAD_LETTER, 0)
            await self._brokers.call(asked, moved, succeeded)
        else:
            target = SendTarget(dead_letter_topic(known), known, 0, broker)
            request = sending.send(target, buried.body, buried.properties, buried.born_ms, buried.sys_flag)
            try:
                await self._brokers.call(asked, request, sending.sent)
            except Refused as refused:
                if refused.code != "TOPIC_NOT_FOUND":
                    raise
                await self._make_topic(asked, known)
                await self._brokers.call(asked, request, sending.sent)
        self.written += 1

    async def _make_topic(self, asked: Asked, group: str) -> None:
        config = TopicConfig(dead_letter_topic(group), 1, 1, Permission.READ | Permission.WRITE, {})
        await self._brokers.call(asked, topics.create_topic(config), succeeded)


async def delivered(brokers: Brokers, delivery: SignedDelivery, group: str) -> StoredMessage | None:
    """The message of a delivery, read again; None: its queue has it no more. Raises Refused.

    Not in the name of its group: where that was reset, its first read is answered with the new position alone.
    """
    handle, topic = delivery.handle, delivery.handle.topic(delivery.topic, names.broker_group(group))
    asked = pulling.BrokerPull(topic, names.READER_GROUP, handle.queue_id, handle.queue_offset, messages_max=1)
    found = await brokers.as_reader(Asked(handle.broker), pulling.pull(asked), pulling.pulled)
    for message in found.messages:
        if message.queue_offset == handle.queue_offset:
            return message
    return None
