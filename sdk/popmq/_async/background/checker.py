"""Answers the broker's check-backs of unresolved half messages: one stream for all topics of a client.

hello (topics) ──▶ welcome ──▶ check ──▶ the topic's callback ──▶ checked ──▶ the next check …
   ▲                                                                             │
   └─────── a pause whenever the stream ends: longer each time, 5 s if refused ◀─┘

The broker refuses a stream with a topic that it does not have. That topic then gets a stream of its own, so that the
others are answered.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from popmq._async.concurrency import BackgroundLoop, Lock, Stop, ends_this_task, finished
from popmq._async.transport.wire import Wire
from popmq._calls import send_calls
from popmq._transport.call_retries import Stopped
from popmq.errors import ClientClosed, PopMQError, TryLater
from popmq_proto.v1 import popmq_pb2 as pb

if TYPE_CHECKING:
    from popmq.transaction import OnCheck

log = logging.getLogger("popmq.transactions")

#: Seconds until a refused stream is opened again: its topic may be created meanwhile.
REFUSED_AGAIN_S = 5.0
CANNOT = "checks of transactions of %s cannot be answered, the stream is opened again: %s"


class Checker:
    """The callbacks of one client, and the streams on which the broker asks."""

    def __init__(self, wire: Wire, client_id: str) -> None:
        self._wire = wire
        self._client_id = client_id
        self._callbacks: dict[str, OnCheck] = {}
        self._lock = Lock()
        self._streams = [CheckStream(self, wire, client_id)]
        self._stopped = False

    def answer_for(self, topic: str, callback: OnCheck) -> None:
        """Calls `callback` for checks of half messages of `topic` from now on. Raises TypeError, ClientClosed."""
        self._wire.check()
        if not callable(callback):
            raise TypeError(f"the checker of {topic!r} is {callback!r:.80}: give a function of a TransactionCheck")
        with self._lock:
            known = topic in self._callbacks
            self._callbacks[topic] = callback
            stream = self._streams[0]
        stream.begin(None if known else topic)

    def alone(self, topic: str) -> None:
        """Opens a stream for this topic only."""
        stream = CheckStream(self, self._wire, self._client_id)
        with self._lock:
            if self._stopped:
                return
            self._streams.append(stream)
        stream.begin(topic)

    async def stop(self) -> None:
        """Ends the streams; the broker asks again what is being answered."""
        with self._lock:
            self._stopped = True
            streams = list(self._streams)
        for stream in streams:
            await stream.stop()

    async def answer(self, response: pb.SessionResponse) -> pb.SessionRequest | None:
        """The answer to a response of the broker; None: it needs none."""
        if not response.HasField("check"):
            return None
        check = send_calls.read_check(response.check)
        callback = self._callbacks.get(check.topic)
        if callback is None:
            return None
        try:
            resolution = send_calls.resolution_of(await finished(callback(check)))
        except BaseException as error:  # such as a cancelling of its own: the next check is answered all the same
            if ends_this_task(error):
                raise
            log.exception(
                "the checker of %s failed on message %s; the broker asks again", check.topic, check.message.message_id
            )
            resolution = pb.RESOLUTION_UNSPECIFIED
        return send_calls.checked(check.transaction_id, resolution)


class CheckStream:
    """One stream, opened again whenever it ends."""

    def __init__(self, checker: Checker, wire: Wire, client_id: str) -> None:
        self._checker = checker
        self._wire = wire
        self._client_id = client_id
        self._topics: set[str] = set()
        self._lock = Lock()
        self._turn = Stop()  # ends the stream that is open
        self._tried = 0
        self._stopped = False
        self._worker = BackgroundLoop("popmq-checker", self._step)

    def begin(self, topic: str | None) -> None:
        """Runs in the event loop of its caller, with one more topic if there is one."""
        self._worker.bind()
        if topic is None:
            return
        with self._lock:
            self._topics.add(topic)
            turn = self._turn
        turn.set()  # a stream names its topics once, at its start
        self._worker.wake()

    async def stop(self) -> None:
        """Ends the stream."""
        with self._lock:
            self._stopped = True
            turn = self._turn
        turn.set()
        await self._worker.stop()

    async def _step(self) -> float | None:
        """One stream, from its hello to its end; the seconds until the next."""
        with self._lock:
            self._turn = turn = Stop()
            topics = sorted(self._topics)
        if self._stopped or not topics:
            return None
        self._tried += 1
        try:
            await self._wire.converse("Broker.Session", send_calls.hello(self._client_id, topics), self._answer, turn)
        except Stopped:
            return 0.0
        except ClientClosed:
            return None
        except TryLater as error:
            log.warning(CANNOT, ", ".join(topics), error)
            return self._wire.pause(self._tried)
        except PopMQError as error:
            return self._refused(topics, error)
        return self._wire.pause(self._tried)

    def _refused(self, topics: list[str], error: PopMQError) -> float:
        """The seconds until the next stream. Of several topics, the one that the error names gets its own."""
        wrong = [topic for index, topic in enumerate(topics) if error.field == f"hello.transaction_topics[{index}]"]
        log.error(CANNOT, ", ".join(wrong or topics), error)
        if len(topics) == 1:
            return REFUSED_AGAIN_S
        for topic in wrong or topics[1:]:
            with self._lock:
                self._topics.discard(topic)
            self._checker.alone(topic)
        return 0.0

    async def _answer(self, response: pb.SessionResponse) -> pb.SessionRequest | None:
        self._tried = 0
        return await self._checker.answer(response)
