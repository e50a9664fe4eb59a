# Written by sdk/twin.py from popmq/_async/background/replies.py: change that one.
"""Requests that wait for a reply. Replies come through a LITE topic, in which each client has a lite topic of its own.

    request ──▶ topic ──▶ consumer ──▶ reply ──▶ popmq-replies/CLIENT ──▶ the waiting call, by correlation id

A background worker pops the client's lite topic while a request waits. Replies are stored like all messages, so they
survive a restart of the broker. Replies that no client has taken are dropped after an hour, so that the lite
topic of a client that is gone becomes idle; it is removed when it was idle for an hour.
"""

import contextlib
import copy
import logging
import uuid
from collections.abc import Callable
from typing import Any

from popmq._calls import admin_calls, pop_calls, requests
from popmq._calls.message_rows import Numbering
from popmq._calls.requests import ACKED, CORRELATION_ID, REPLIES, REPLY_TTL_S, WAIT_S
from popmq._sync.concurrency import BackgroundLoop, Event, Lock, Stop
from popmq._sync.transport.wire import Wire
from popmq._transport.call_retries import Stopped
from popmq.errors import AlreadyExists, ClientClosed, Forbidden, NotFound, PermissionDenied, PopMQError, TryLater
from popmq.message import Body, Delivery, Message
from popmq.topic import Group, LiteTopics, Retention
from popmq_http2.elapsed import monotonic

log = logging.getLogger("popmq.client")

Send = Callable[..., Any]

#: Seconds that the broker has to take a request whose reply is wanted sooner: else a busy one would never get it.
TAKE_S = 1.0


class Asked:
    """One call of `request`, which waits for its reply."""

    def __init__(self) -> None:
        self.come = Event()
        self.reply: Delivery | None = None
        self.error: PopMQError | None = None  # why no reply can be read


class Replies:
    """The replies to one client."""

    def __init__(self, wire: Wire, client_id: str, numbering: Numbering) -> None:
        self._wire = wire
        self._client_id = client_id
        self._numbering = numbering
        #: It cannot be guessed: a client that may read the topic must not find the replies to others.
        self._lite_topic = uuid.uuid4().hex
        self._asked: dict[str, Asked] = {}
        self._changing = Lock()
        self._stop = Stop()
        self._made = False
        self._worker = BackgroundLoop("popmq-replies", self._step)

    def request(self, send: Send, topic: str, message: Message | Body, timeout: float) -> Delivery:
        """Sends the message, and waits for its reply. Raises ClientClosed when the client is closed meanwhile."""
        self._wire.check()
        until = monotonic() + timeout
        self._make(until)
        correlation_id, call = uuid.uuid4().hex, Asked()
        sent = requests.request(message, f"{REPLIES}/{self._lite_topic}", correlation_id)
        with self._changing:
            self._asked[correlation_id] = call
            if self._stop.is_set():
                call.come.set()
        try:
            self._worker.bind()
            send(topic, sent, timeout=_left(until))
            self._worker.wake()
            call.come.wait(max(0.0, until - monotonic()))
        finally:
            with self._changing:
                del self._asked[correlation_id]
        if call.reply is not None:
            return requests.answer(call.reply)
        if self._stop.is_set():
            raise ClientClosed("this client was closed before the reply came: the request may still be handled")
        raise call.error or requests.no_answer(topic, timeout)

    def _make(self, until: float) -> None:
        """Makes the topic and the group, once. Without the right to, they have to be there."""
        if self._made:
            return
        lite, kept = LiteTopics(ttl=REPLY_TTL_S), Retention(keep=REPLY_TTL_S, by_age=True)
        topic = admin_calls.create_topic(REPLIES, None, "LITE", kept, None, 0.0, lite, "READ_WRITE")
        with contextlib.suppress(AlreadyExists, PermissionDenied):
            self._wire.run(topic, timeout=_left(until))
        with contextlib.suppress(AlreadyExists, PermissionDenied):
            self._wire.run(admin_calls.create_group(Group(REPLIES)), timeout=_left(until))
        self._made = True

    def _step(self) -> float | None:
        """Takes the replies that have arrived for this client; None: no request waits."""
        if not self._asked or self._stop.is_set():
            return None
        pop = pop_calls.pop(
            REPLIES,
            REPLIES,
            client_id=self._client_id,
            max_messages=32,
            wait=WAIT_S,
            invisible=None,
            queues=(),
            max_bytes=0,
            attempt_id=self._numbering.attempt_id(),
            filter=None,
            guard=lambda _: ACKED,
            lite_topics=(self._lite_topic,),
        )
        made = self._made
        try:
            self._make(monotonic())
            deliveries = (self._wire.run(pop, self._stop)).deliveries
            if deliveries:
                self._wire.run(pop_calls.ack(REPLIES, [delivery.handle for delivery in deliveries]))
        except Stopped:
            return None
        except (TryLater, Forbidden) as error:
            log.debug("no replies for now: %s", error)
            return 1.0
        except PopMQError as error:
            self._made = False
            if made and isinstance(error, NotFound):  # it was deleted, or the broker has begun anew
                return 0.0
            self._fail(error)
            return 1.0
        for delivery in deliveries:
            self._take(delivery)
        return 0.0

    def _take(self, delivery: Delivery) -> None:
        correlation_id = delivery.properties.get(CORRELATION_ID, "")
        with self._changing:
            call = self._asked.get(correlation_id)
        if call is None:
            # A rejecting worker and the broker, which made the request a dead letter, may both say so.
            level = logging.DEBUG if requests.ERROR in delivery.properties else logging.INFO
            log.log(level, "a reply came after its request had ended: correlation id %s", correlation_id)
            return
        call.reply = delivery
        call.come.set()

    def _fail(self, error: PopMQError) -> None:
        """Ends the waiting for replies that cannot be read, such as without the right to."""
        with self._changing:
            for call in self._asked.values():
                call.error = copy.copy(error)
                call.come.set()

    def stop(self) -> None:
        """Ends the waiting for replies."""
        self._stop.set()
        with self._changing:
            for call in self._asked.values():
                call.come.set()
        self._worker.stop()


def _left(until: float) -> float:
    """Seconds until then for a call that the broker takes at once, but not less than TAKE_S."""
    return max(TAKE_S, until - monotonic())
