"""Recall: the broker that the handle names stores an order to its timer (370).

OK means that it was asked for: a broker answers OK also for a message that never was.
"""

from popmq_remoting import Response, ResponseCode
from popmq_remoting.requests import sending
from popmq_server.cluster.refusals import Asked
from popmq_server.cluster.shared import Shared
from popmq_server.cluster.signed import recalls
from popmq_server.contract.commands import Recall
from popmq_server.errors import Refused, unavailable


class Recalls:
    """Recalls delayed messages."""

    def __init__(self, shared: Shared) -> None:
        self._brokers, self._topics = shared.brokers, shared.topics

    async def recall(self, command: Recall) -> str:
        """The message's id. Raises Refused MESSAGE_NOT_FOUND once it is due, UNSUPPORTED by a broker's setting."""
        topic = await self._topics.get(command.topic)
        handle = recalls.read(command.handle, topic.broker_name)
        # Nobody has signed the handle: names of brokers that it makes up would fill the metrics.
        if handle.broker not in await self._brokers.masters():
            raise unavailable(f"the name servers know no broker {handle.broker[:40]!r}, which the recall handle names")
        request = sending.recall(topic.broker_name, command.handle, topic.broker_name)
        answer = await self._brokers.call(Asked(handle.broker, command.topic), request, _message_id)
        if isinstance(answer, Refused):
            raise answer
        return answer


def _message_id(answer: Response) -> str | Refused:
    """Raises BrokerRefused, BadFormat."""
    if answer.code == ResponseCode.ILLEGAL_OPERATION:
        return Refused(
            "MESSAGE_NOT_FOUND",
            "the message of this recall handle is due already",
            field="recall_handle",
            action="treat it as sent: it cannot be recalled any more",
        )
    return answer.expect().text("msgId")


BY_RECALLS = Recall.awaited_by(Recalls.recall)
