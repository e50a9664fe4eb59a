"""Answers the broker's check-backs of unresolved half messages: one stream for all topics of a client.

hello (topics) ──▶ welcome ──▶ check ──▶ the topic's callback ──▶ checked ──▶ the next check …
   ▲                                                                             │
   └─────── a pause whenever the stream ends: longer each time, 5 s if refused ◀─┘
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from popmq._async.concurrency import Lock, Stop, Worker, finished
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


class Checker:
    """The callbacks of one client, and the stream on which the broker asks."""

    def __init__(self, wire: Wire, client_id: str) -> None:
        self._wire = wire
        self._client_id = client_id
        self._callbacks: dict[str, OnCheck] = {}
        self._lock = Lock()
        self._turn = Stop()  # ends the stream that is open
        self._tried = 0
        self._stopped = False
        self._worker = Worker("popmq-checker", self._step)

    def answer_for(self, topic: str, callback: OnCheck) -> None:
        """Calls `callback` for checks of half messages of `topic` from now on."""
        self._worker.bind()
        with self._lock:
            known = topic in self._callbacks
            self._callbacks[topic] = callback
            turn = self._turn
        if not known:
            turn.set()  # a stream names its topics once, at its start
            self._worker.wake()

    async def stop(self) -> None:
        """Ends the stream; the broker asks again what is being answered."""
        with self._lock:
            self._stopped = True
            turn = self._turn
        turn.set()
        await self._worker.stop()

    async def _step(self) -> float | None:
        """One stream, from its hello to its end; the seconds until the next."""
        with self._lock:
            self._turn = turn = Stop()
            topics = sorted(self._callbacks)
        if self._stopped:
            return None
        self._tried += 1
        try:
            await self._wire.converse("Broker.Session", send_calls.hello(self._client_id, topics), self._answer, turn)
        except Stopped:
            return 0.0
        except ClientClosed:
            return None
        except PopMQError as error:
            log.warning(
                "checks of transactions of %s cannot be answered, the stream is opened again: %s",
                ", ".join(topics),
                error,
            )
            return self._wire.pause(self._tried) if isinstance(error, TryLater) else REFUSED_AGAIN_S
        return self._wire.pause(self._tried)

    async def _answer(self, response: pb.SessionResponse) -> pb.SessionRequest | None:
        """The answer to a response of the broker; None: it needs none."""
        self._tried = 0
        if not response.HasField("check"):
            return None
        check = send_calls.read_check(response.check)
        callback = self._callbacks.get(check.topic)
        if callback is None:
            return None
        try:
            resolution = send_calls.resolution_of(await finished(callback(check)))
        except Exception:
            log.exception(
                "the checker of %s failed on message %s; the broker asks again", check.topic, check.message.message_id
            )
            resolution = pb.RESOLUTION_UNSPECIFIED
        return send_calls.checked(check.transaction_id, resolution)
