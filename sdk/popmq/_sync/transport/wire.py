# Written by sdk/twin.py from popmq/_async/transport/wire.py: change that one.
"""Runs calls: tries, deadlines, errors. Everything that a client asks of its broker passes here."""

import logging
import os
from collections.abc import Callable
from typing import Any, TypeVar

from popmq._runtime import forks
from popmq._sync.concurrency import Home, Lock, Stop
from popmq._sync.transport.channel import channel
from popmq._transport.call import Call, Pages
from popmq._transport.call_retries import CallRetries, Stopped
from popmq._transport.connection import Connection
from popmq._transport.rpc_errors import read_rpc_error
from popmq._transport.telemetry import Telemetry
from popmq.config import Retry, Timeouts, time_limit
from popmq.duration import Duration
from popmq.errors import ClientClosed, DeadlineExceeded, PopMQError, Unavailable
from popmq_http2.client.call import CallFailed
from popmq_http2.elapsed import monotonic

T = TypeVar("T")

log = logging.getLogger("popmq.client")

#: Seconds that closing waits for a broker that does not answer, for everything that it asks.
CLOSE_S = 5.0


class Wire:
    """One connection to a broker, in the process that made it."""

    def __init__(self, connection: Connection, timeouts: Timeouts, retry: Retry, client_id: str) -> None:
        self.telemetry = Telemetry(connection.endpoint, client_id)
        self.timeouts = timeouts
        self.calls = 0
        self.retries = 0
        self.losses = 0  # tries that did not reach the broker: it may have restarted
        self._endpoint = connection.endpoint
        self._retry = retry
        self._channel = channel(connection)
        self._closing = Stop()
        self._counting = Lock()
        self._home = Home()
        self._pid, self._born = os.getpid(), forks.count
        self._away_since: float | None = None  # when the broker was first seen not to answer
        self._close_s: float | None = None
        self._closing_since: float | None = None  # when closing began to wait for an answer
        self._waits = False  # one of both is set

    def run(self, call: Call[T], stop: Stop | None = None, closing: bool = False, timeout: Duration | None = None) -> T:
        """Runs `call` until it is answered, retrying within its timeout what may be retried.

        `closing`: within the time that closing has left. `timeout`: in place of the client's. Raises the error of
        the last try; Stopped once `stop` is set; ClientClosed; InvalidField.
        """
        limit = time_limit(timeout) or getattr(self.timeouts, call.timeout)
        if call.pages is not None:
            return self._run_pages(call, call.pages, stop, limit)
        self.check()
        if closing:
            limit = min(limit, self._closing_limit())
        tries = CallRetries(call, limit, self._retry, monotonic())
        with self._counting:
            self.calls += 1
        while True:
            try:
                left = tries.start(monotonic())
                reply = self._channel.unary(call.method, call.request, left, stop)
            except CallFailed as refused:
                error = read_rpc_error(refused, self._endpoint, call.method)
                self.losses += isinstance(error, Unavailable)
                self._failed(error, call.method)
                if tries.uncertain and isinstance(error, call.done):
                    return call.read(None, True)
                pause = tries.failed(error, monotonic(), refused.sent)
            else:
                if self._waits:
                    self._back()
                return call.read(reply, tries.uncertain)
            self._pause(pause, stop)
            self.check()

    def _run_pages(self, call: Call[T], pages: Pages, stop: Stop | None, limit: float) -> T:
        """Runs a call for each page of its list, each with the timeout and the tries of a call."""
        one: Call[Any] = Call(call.method, call.request, lambda reply, _: reply, call.timeout)
        whole: Any = None
        while pages.next(call.request, whole):
            page = self.run(one, stop, timeout=limit)
            if whole is None:
                whole = page
            else:
                pages.add(whole, page)
        return call.read(whole, False)

    def converse(self, method: str, hello: Any, answer: Callable[[Any], Any], stop: Stop) -> None:
        """Opens a bidirectional stream and answers each response until the stream ends. It is not opened again.

        Raises the error that ended it; Stopped once `stop` is set; ClientClosed.
        """
        self.check()
        try:
            self._channel.converse(method, hello, answer, stop)
        except CallFailed as refused:
            raise read_rpc_error(refused, self._endpoint, method) from None

    def listen(self, method: str, request: Any, take: Callable[[Any], None]) -> None:
        """Gives `take` each response of a stream until it ends. Never retried: `take` has had the responses already.

        Raises the error that ended it, and what `take` raises; ClientClosed.
        """
        self.check()
        try:
            self._channel.listen(method, request, take)
        except CallFailed as refused:
            raise read_rpc_error(refused, self._endpoint, method) from None

    def _failed(self, error: PopMQError, method: str) -> None:
        """Logs the first call that reaches no broker; the others, and other errors, only for debugging."""
        with self._counting:
            first = self._away_since is None and isinstance(error, Unavailable)
            if first:
                self._away_since, self._waits = monotonic(), True
            if not isinstance(error, Unavailable | DeadlineExceeded):
                self._closing_since = None
        if first:
            log.info("no answer to %s, calls are tried again until their timeouts: %s", method, error)
        else:
            log.debug("%s failed: %s", method, error)

    def _back(self) -> None:
        with self._counting:
            since, self._away_since = self._away_since, None
            self._closing_since, self._waits = None, False
        if since is not None:
            log.info("the broker at %s answers again after %.1f s", self._endpoint, monotonic() - since)

    def away(self) -> bool:
        """Whether the last calls reached no broker."""
        return self._away_since is not None

    def closing_left(self) -> float:
        """Seconds that closing may wait: CLOSE_S from when it began to, and again after each answer of the broker."""
        now = monotonic()
        with self._counting:
            if self._closing_since is None:
                self._closing_since, self._waits = now, True
            return self._closing_since + (self._close_s or CLOSE_S) - now

    def closes_within(self, seconds: float) -> None:
        """Sets how long closing may wait, in place of CLOSE_S."""
        self._close_s = seconds

    def _closing_limit(self) -> float:
        left = self.closing_left()
        if left <= 0:
            raise Unavailable(f"no broker answers at {self._endpoint}, and closing waits no longer", code="UNAVAILABLE")
        return left

    def pause(self, tried: int) -> float:
        """Seconds before the next try, after `tried` ≥ 1 failures."""
        return self._retry.pause(tried)

    def without_threads(self) -> bool:
        """Whether the client has lost its threads: in a forked child, or at the end of the interpreter."""
        return forks.without_threads(self._born)

    def close(self) -> None:
        """Ends running calls with ClientClosed."""
        self._closing.set()
        self._channel.close()

    def check(self) -> None:
        """Raises ClientClosed when no call can be made any more."""
        if self._closing.is_set():
            raise ClientClosed("this client is closed")
        self.check_home()
        if self.without_threads():
            if forks.count == self._born:
                raise ClientClosed("the program has ended, and with it this client", action=forks.EARLIER)
            # Without this the child would write into its parent's connection.
            raise ClientClosed(
                f"this client was made in process {self._pid}, before the fork to {os.getpid()}",
                action="make a new client in each process",
            )

    def check_home(self) -> None:
        """Raises ClientClosed in another event loop than that of the first call."""
        if not self._home.is_here():
            raise ClientClosed(
                "this client belongs to another event loop, which used it first",
                action="make a new client in each event loop",
            )

    def _pause(self, seconds: float, stop: Stop | None) -> None:
        with self._counting:
            self.retries += 1
        (stop or self._closing).wait(seconds)
        if stop and stop.is_set():
            raise Stopped
