"""A message that a worker of Dramatiq has in hand, and what is stored in the commit that ends it."""

import logging
from typing import Any

import dramatiq
from dramatiq.broker import MessageProxy

import popmq
from popmq.errors import InvalidField
from popmq_integrations.reasons import REASON_BYTES_MAX, reason_of

log = logging.getLogger("popmq.dramatiq")

_UNSENT = "what is enqueued when it ends cannot be sent"


class Delivered(MessageProxy):
    """A message under a lease. The lease is renewed until the message is settled.

    Dramatiq ends an attempt in several steps: it stores a result, enqueues the retry or the next message of a pipeline,
    then it acks. Here these steps are one commit of the broker, so that a worker which is killed between them leaves
    neither half.
    """

    def __init__(self, message: "dramatiq.Message[Any]", delivery: popmq.Delivery, endpoint: str) -> None:
        super().__init__(message)
        self.delivery = delivery
        self._endpoint = endpoint
        self._sends: list[popmq.Send] = []
        self._result: popmq.Result | None = None
        self._settled = False

    def rides(self, send: popmq.Send, endpoint: str) -> bool:
        """Whether `send` is stored in the commit that ends this message. No: it has ended, or is of another broker."""
        if self._settled or endpoint != self._endpoint:
            return False
        self._sends.append(send)
        return True

    def takes(self, result: popmq.Result | None, group: str, endpoint: str) -> bool:
        """Whether a result needs no commit of its own: it rides with the ack.

        None: the result of a failed message, which is its dead letter, made before or after this.
        """
        if endpoint != self._endpoint or group != self.delivery.group:
            return False
        if result is not None:
            if self._settled:
                return False
            self._result = result
        return True

    def ack(self) -> None:
        """Acks it, in the background, together with what rides. If that cannot be sent, it is a dead letter: its actor
        would run again for nothing.
        """
        self._settled = True
        if self._sends:
            try:
                self.delivery.settle(self._sends, self._result)
            except InvalidField as error:
                self.delivery.reject(f"{_UNSENT}: {error}")
        else:
            self.delivery.ack(self._result)

    def reject(self, client: popmq.Client) -> None:
        """Makes it a dead letter, whose reason is the traceback, together with what rides, if that can be sent."""
        if self._sends:
            try:
                client.settle(reject=[self.delivery], sends=self._sends, reason=self._reason())
            except InvalidField as error:
                log.error("message %s failed, and %s: %s", self.message_id, _UNSENT, error)
                client.reject(self.delivery, self._reason())
        else:
            client.reject(self.delivery, self._reason())
        self._settled = True

    def release(self) -> None:
        """Gives it back, visible at once: no actor has begun it, and no attempt counts."""
        self._settled = True
        self.delivery.release(0.0, uncounted=True, reason="the worker stopped before it began this message")

    def _reason(self) -> str:
        """Why it failed: its exception; of one that failed before it ran, what Retries noted."""
        if self._exception is not None:
            return reason_of(self._exception, "dramatiq")
        noted = str(self.options.get("traceback") or "failed by a middleware")
        return noted.encode(errors="replace")[-REASON_BYTES_MAX:].decode(errors="ignore")
