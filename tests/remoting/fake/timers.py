"""Delayed messages of a broker: appended when they are due, unless they were recalled."""

import asyncio

from popmq_remoting.codes import RequestCode, ResponseCode
from popmq_remoting.errors import BadFormat
from popmq_remoting.messages import recall
from popmq_remoting.messages.recall import BrokerRecallHandle
from popmq_remoting.wire.command import Request, Response
from tests.remoting.fake.log import Log
from tests.remoting.fake.server import Client, Handler, ok


class Timers:
    """`enabled`: recallMessageEnable."""

    def __init__(self, log: Log, broker: str) -> None:
        self._log, self._broker = log, broker
        self.enabled = True
        #: Ids of messages that were recalled.
        self._recalled: set[str] = set()
        self.handlers: dict[int, Handler] = {RequestCode.RECALL_MESSAGE: self._recall}

    def due_ms(self, own: dict[str, str]) -> int:
        """When a message with these properties is due; 0 or past: it is not delayed."""
        delay_ms = int(own.get("TIMER_DELAY_MS", "0"))
        return self._log.now_ms() + delay_ms if delay_ms else int(own.get("TIMER_DELIVER_MS", "0"))

    def keep(
        self, topic: str, queue_id: int, body: bytes, text: str, due_ms: int, message_id: str, /, **more: int
    ) -> str:
        """Its recall handle."""

        def append() -> None:
            if message_id not in self._recalled:
                self._log.append(topic, queue_id, body, text, **more)

        asyncio.get_running_loop().call_later((due_ms - self._log.now_ms()) / 1000, append)
        return BrokerRecallHandle(topic, self._broker, due_ms, message_id).text()

    def _recall(self, client: Client, request: Request) -> Response:
        """OK also for a message that never was."""
        if not self.enabled:
            return Response(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        try:
            handle = recall.read(request.fields["recallHandle"])
        except BadFormat as bad:
            return Response(ResponseCode.ILLEGAL_OPERATION, str(bad))
        if handle.topic != request.fields["topic"] or handle.broker != self._broker:
            return Response(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.deliver_at_ms <= self._log.now_ms():
            return Response(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        self._recalled.add(handle.message_id)
        return ok(msgId=handle.message_id)
