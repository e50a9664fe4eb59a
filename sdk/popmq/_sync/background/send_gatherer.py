# Written by sdk/twin.py from popmq/_async/background/send_gatherer.py: change that one.
"""Gathers the sends of many callers into few requests. popmq._calls.send_batching decides; this waits and calls."""

import copy
from typing import Any

from popmq._calls import send_calls
from popmq._calls.message_rows import Numbering
from popmq._calls.send_batching import GATHER_S_MAX, PendingSend, TopicSends
from popmq._calls.send_calls import Rows
from popmq._sync.concurrency import Event, Lock, others_ran, run_to_end
from popmq._sync.transport.wire import Wire
from popmq.errors import DeadlineExceeded, PopMQError
from popmq_http2.elapsed import monotonic


class SendGatherer:
    """The sends of one client, by topic."""

    def __init__(self, wire: Wire, numbering: Numbering) -> None:
        self.sent = 0
        self.requests = 0
        self._wire = wire
        self._numbering = numbering
        self._lock = Lock()
        self._topics: dict[str, TopicSends] = {}

    def send(self, topic: str, rows: Rows, size: int, limit: float | None = None) -> list[Any]:
        """Sends rows of `size` bytes, perhaps together with others. A SendReceipt or the error of each, in order.

        `limit`: seconds, in place of the client's timeout; only sends of the same limit share a request.
        """
        self._wire.check()  # before it meets the sends of others
        groups = send_calls.message_groups(rows)
        send = PendingSend(rows, size, Event(), groups, limit or self._wire.timeouts.send)
        with self._lock:
            sends = self._topics.setdefault(topic, TopicSends())
            sends.add(send)
        try:
            self._until_settled(topic, sends, send)
        finally:
            with self._lock:
                sends.withdraw(send)  # its caller may have been cancelled
        if send.error is not None:
            raise send.error
        return send.results

    def send_all(self, topic: str, rows: Rows, limit: float | None = None) -> list[Any]:
        """Sends any number of rows, in as many requests as it takes. A SendReceipt or the error of each, in order.

        Sends nothing after a request that fails: its rows and all later ones get its error. Raises it if that is the
        first request.
        """
        results: list[Any] = []
        for run, size in send_calls.cut(rows):
            try:
                results += self.send(topic, run, size, limit)
            except PopMQError as error:
                if not results:
                    raise
                results += [error] * (len(rows) - len(results))
                break
        return results

    def waiting(self) -> int:
        """Callers whose messages are not in a request yet."""
        with self._lock:
            return sum(sends.waiting for sends in self._topics.values())

    def _until_settled(self, topic: str, sends: TopicSends, send: PendingSend) -> None:
        deadline = monotonic() + send.limit
        patient = True
        while not send.settled:
            with self._lock:
                request = sends.take_request(patient)
            if request:
                run_to_end(self._run, topic, sends, request)
            elif monotonic() >= deadline and self._withdraw(sends, send):
                raise DeadlineExceeded(
                    "earlier sends of this client take too long; this one was not sent", retryable=True
                )
            else:
                limit = GATHER_S_MAX if send.keeps_time and patient else deadline - monotonic()
                patient = send.wake.wait(max(limit, GATHER_S_MAX)) or not send.keeps_time
                send.wake.clear()

    def _run(self, topic: str, sends: TopicSends, request: list[PendingSend]) -> None:
        """Sends one request and settles each of its sends, whatever happens."""
        try:
            # The number is drawn once: every try of this call is the same request to the broker.
            number = self._numbering.request_number()
            parts = [send.rows for send in request]
            call = send_calls.send(topic, parts, self._numbering.producer_id, number)
            results = self._wire.run(call, timeout=request[0].limit)
        except Exception as error:
            self._settle(request, [], error)
        except BaseException:
            # Only this thread was interrupted, not the other callers of the request.
            self._settle(request, [], PopMQError("the sending thread was interrupted: whether it sent is not known"))
            raise
        else:
            self._settle(request, results, None)
            if len(request) > 1:
                others_ran()  # those that send again at once join those that wait
        finally:
            with self._lock:
                sends.finished(request)

    def _settle(self, request: list[PendingSend], results: list[Any], error: Exception | None) -> None:
        with self._lock:
            self.requests += error is None
            self.sent += len(results)
        start = 0
        for send in request:
            send.settle(results[start : start + len(send.rows)], copy.copy(error))
            start += len(send.rows)

    def _withdraw(self, sends: TopicSends, send: PendingSend) -> bool:
        with self._lock:
            return sends.withdraw(send)
