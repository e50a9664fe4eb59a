# Written by sdk/twin.py from popmq/_async/requests.py: change that one.
"""Requests and replies: see replies.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from popmq._runtime.later import Later
from popmq.config import time_limit

if TYPE_CHECKING:
    from popmq._calls import requests
    from popmq._sync.background.replies import Replies
    from popmq.duration import Duration
    from popmq.message import Body, Delivery, Message, SendReceipt
else:
    requests = Later("popmq._calls.requests")


class Requests:
    """Sends requests and replies to them."""

    _replies: Replies
    send: Any  # of the client: typed there, with its overloads

    def request(self, topic: str, message: Message | Body, timeout: Duration = 30.0) -> Delivery:
        """Sends a message and waits for its reply, which is returned without a handle, since it is acked already.

        A consumer of the topic replies with `reply`; a handler of a `popmq.Worker` by returning a value. The first call
        makes the LITE topic and the group `popmq-replies`; a client without the right `admin` needs both and
        `receive:popmq-replies/popmq-replies`. A reply that comes after `timeout` is dropped with a line in the log.
        A broker that does not answer has at least a second to take the request.
        Raises DeadlineExceeded if no reply came in time (the request may still be handled), RequestFailed if the
        handler rejected it, ClientClosed if this client is closed meanwhile, PermissionDenied if it may not read
        replies, and what `send` raises.
        """
        limit = time_limit(timeout, otherwise=f"{requests.TIMEOUT_S:g} s") or requests.TIMEOUT_S
        return self._replies.request(self.send, topic, message, limit)

    def reply(self, delivery: Delivery, message: Message | Body, *, timeout: Duration | None = None) -> SendReceipt:
        """Replies to a delivery that was sent by `request`; returns when the reply is on the broker's disk.

        It does not settle the delivery. Raises InvalidField if the message is not a request, and what `send` raises.
        """
        topic, answer = requests.reply(delivery, message)
        receipt: SendReceipt = self.send(topic, answer, timeout=timeout)
        return receipt
