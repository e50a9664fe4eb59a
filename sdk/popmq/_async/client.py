"""AsyncClient: sends, pops and settles messages; its namespaces have the other calls."""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Unpack, overload

from popmq._async.closing import AsyncClosing
from popmq._async.concurrency import at_exit
from popmq._async.namespaces import AsyncNamespaces
from popmq._async.pulling import AsyncPulling
from popmq._async.requests import AsyncRequests
from popmq._async.results import AsyncResults
from popmq._async.settling import AsyncSettling
from popmq._async.transport.wire import Wire
from popmq._calls import pop_calls
from popmq._calls.pop_calls import all_or_raise
from popmq._consuming.clock import Clock, SystemClock
from popmq._given.fields import filter_row, instance, text
from popmq._runtime.later import Later
from popmq._transport.connection import Transport, connection
from popmq.config import Retry, Timeouts, time_limit
from popmq.duration import Duration, seconds_of
from popmq.errors import ClientClosed

if TYPE_CHECKING:
    from popmq._async.consuming.consumer import AsyncConsumer
    from popmq._async.consuming.pull_consumer import AsyncPullConsumer
    from popmq._async.transaction import AsyncTransaction
    from popmq._calls import inspection_calls, owner_calls, send_calls
    from popmq._calls.encoded import EncodedMessages
    from popmq._consuming import guard as _guarding
    from popmq._consuming.guard import Guard
    from popmq.config import ConsumeOptions
    from popmq.message import Body, Delivery, Message, SendReceipt
    from popmq.owner import Availability, Position
    from popmq.stats import BrokerInfo, ClientStats
    from popmq.transaction import OnCheck
else:
    inspection_calls = Later("popmq._calls.inspection_calls")
    owner_calls = Later("popmq._calls.owner_calls")
    _guarding = Later("popmq._consuming.guard")
    send_calls = Later("popmq._calls.send_calls")


class AsyncClient(AsyncSettling, AsyncPulling, AsyncRequests, AsyncResults, AsyncNamespaces, AsyncClosing):
    """A client of one broker. Threads may share it (an asynchronous one: the tasks of one event loop).

    It sends, reads and settles. Other calls are in its namespaces: `client.topics`, `client.groups`, …

    `endpoint` (host:port): else POPMQ_ENDPOINT, else 127.0.0.1:8081. How it reaches the broker otherwise is taken from
    the environment in the same way: POPMQ_TLS, POPMQ_ACCESS_KEY, …, as docs/sdk.md lists them.
    `client_id` (≤ 128 bytes) names the client in lists of leases; by default it is made of host, process and a random
    part. docs/sdk.md describes the other parameters. After a fork create a new client. Raises InvalidField,
    TypeError.

    `timeout` of a call is how long it may take, its retries included, as a duration; None: what `timeouts` has for its
    kind. A call that needs several requests has it for each.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        client_id: str | None = None,
        timeouts: Timeouts | None = None,
        retry: Retry | None = None,
        clock: Clock | None = None,
        tls: bool | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
        access_key: str | None = None,
        secret: str | None = None,
        transport: Transport | None = None,
        client_cert: str | os.PathLike[str] | None = None,
        client_key: str | os.PathLike[str] | None = None,
    ) -> None:
        self.client_id = (
            text(client_id or "", "client_id") or f"{socket.gethostname()[:80]}-{os.getpid()}-{os.urandom(4).hex()}"
        )
        self._clock = clock or SystemClock()
        reached = connection(endpoint, tls, tls_ca, access_key, secret, transport, client_cert, client_key)
        self.endpoint = reached.endpoint
        limits = instance(timeouts, Timeouts, "timeouts") or Timeouts()
        self._wire = Wire(reached, limits, instance(retry, Retry, "retry") or Retry(), self.client_id)
        self._consumers: weakref.WeakSet[AsyncConsumer] = weakref.WeakSet()
        self._pull_consumers: weakref.WeakSet[AsyncPullConsumer] = weakref.WeakSet()
        self._closes = False
        at_exit(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.endpoint!r}, client_id={self.client_id!r})"

    async def close(self) -> None:
        """Closes the consumers, sends outstanding outcomes to the broker, and closes the connection.

        In a signal handler inside a consumer's loop it only stops; the loop then closes it. In a forked child: nothing.
        """
        if self._wire.without_threads():
            return
        self._wire.check_home()
        self._closes = True
        consumers = self._stop_consumers()
        for consumer in consumers:
            if consumer._interrupted():
                consumer._then = self.close
                return
        for consumer in consumers:
            await consumer.close()
        await self._stop_parts()

    async def info(self, *, timeout: Duration | None = None) -> BrokerInfo:
        """The broker's release and engine, and the parts of the contract that it lacks. Any access key may ask."""
        return await self._wire.run(inspection_calls.info(), timeout=timeout)

    def client_stats(self) -> ClientStats:
        """Counts of this client's calls, retries and sends."""
        from popmq.stats import ClientStats

        gather = self._gatherer
        return ClientStats(self._wire.calls, self._wire.retries, gather.sent, gather.requests, gather.waiting())

    # ── Send ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    # A str is also an Iterable[str], and so the overloads of this class overlap; the first one wins, as it should.
    @overload
    async def send(self, topic: str, messages: Message | Body, *, timeout: Duration | None = None) -> SendReceipt: ...  # type: ignore[overload-overlap]  # a str is an iterable too

    @overload
    async def send(
        self, topic: str, messages: Iterable[Message | Body] | EncodedMessages, *, timeout: Duration | None = None
    ) -> list[SendReceipt]: ...

    async def send(
        self,
        topic: str,
        messages: Message | Body | Iterable[Message | Body] | EncodedMessages,
        *,
        timeout: Duration | None = None,
    ) -> SendReceipt | list[SendReceipt]:
        """Stores one message, or many in order; returns when they are on the broker's disk.

        Concurrent sends of threads and tasks are combined into one request; a single caller does not wait for others.
        A send that is retried, also across a restart of the broker, is stored once. Messages of one message group keep
        the order in which they were passed to this client.
        Send objects as JSON: `send(topic, Message.json({"order": 1}))`.
        Raises TypeError, and sends nothing, if a value is not a Message, text or bytes; PartlyRefused if the broker
        refused some of many messages; TopicNotFound, StorageFull, RateLimited, …; DeadlineExceeded if it is not known
        whether the message was stored.
        """
        if not isinstance(topic, str):
            raise send_calls.wrong_topic(topic)
        limit = time_limit(timeout)
        given, one = send_calls.given_rows(messages, self._numbering.message_id)
        with self._wire.telemetry.sending(topic, given) as rows:
            results = all_or_raise(await self._gatherer.send_all(topic, rows, limit))
        return results[0] if one else results

    def transaction(self, topic: str, on_check: OnCheck | None = None) -> AsyncTransaction:
        """Returns a `with` block whose messages become visible when the block succeeds, and never if it raises.

        The topic has any type but NORMAL and LITE. `on_check`: see `transactions.on_check`.
        """
        if on_check is not None:
            self.transactions.on_check(topic, on_check)
        from popmq._async.transaction import AsyncTransaction

        return AsyncTransaction(topic, self)

    # ── Pop ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def pop(
        self,
        topic: str,
        group: str,
        max_messages: int = 32,
        wait: Duration = 0.0,
        invisible: Duration | None = None,
        queues: Sequence[int] = (),
        max_bytes: int = 0,
        attempt_id: str = "",
        *,
        tag: str | None = None,
        sql: str | None = None,
        lite_topics: Sequence[str] = (),
        timeout: Duration | None = None,
    ) -> list[Delivery]:
        """Leases up to `max_messages` (1–4,096); waits up to `wait` (≤ 60 s) if there are none.

        Durations are seconds, a timedelta, or a text such as "90s". Returns an empty list if no message arrived.
        `invisible`: length of the lease, 1 s – 12 h; None: the group's setting. `queues`: empty = all. `max_bytes`
        limits the answer, ≤ 16 MiB; 0 = 3 MiB. A pop that is repeated with its `attempt_id` (≤ 64 bytes) returns the
        same messages, except those that are done; the SDK sets one for its own retries. A cancelled or interrupted pop
        releases its messages, and no attempt counts, unless you set its `attempt_id`.
        `tag` ("a || b") or `sql` ("region = 'eu' AND amount > 100") is the filter: the first pop fixes it for the group
        in the topic; without both, the fixed one applies. `lite_topics`: the lite topics to read in a LITE topic,
        `["*"]` for all of them; they need not exist. Each delivers one batch at a time, and the next one when that is
        settled.
        Raises TopicNotFound, GroupNotFound, InvalidField, FilterConflict, InvalidFilter, WrongConsumeMode, PollingFull,
        InFlightLimit, RateLimited.
        """
        self._wire.check()  # before they are bound to this event loop: it may be the wrong one
        if self._closes:  # who pops and acks in a loop would keep `close` waiting
            raise ClientClosed("this client is being closed")
        self._parts.settler.bind()
        self._parts.scheduler.bind()
        call = pop_calls.pop(
            topic,
            group,
            client_id=self.client_id,
            max_messages=max_messages,
            wait=seconds_of(wait, "wait"),
            invisible=invisible,
            queues=queues,
            max_bytes=max_bytes,
            attempt_id=attempt_id or self._numbering.attempt_id(),
            filter=filter_row(tag, sql),
            guard=self._guard,
            lite_topics=lite_topics,
        )
        try:
            with self._wire.telemetry.receiving(topic, group) as received:
                received.deliveries = (await self._wire.run(call, timeout=timeout)).deliveries
        except BaseException as error:
            if not attempt_id and not isinstance(error, Exception):
                self._parts.settler.release_batch_of(call)
            raise
        return received.deliveries

    def consume(self, topic: str, group: str, **options: Unpack[ConsumeOptions]) -> AsyncConsumer:
        """Returns a loop over deliveries that runs until it is stopped; `with delivery` acks, releases and renews.

        Options: `max_messages` 256, `wait` 20 s, `invisible` None, `queues` (), `on_error` "log", `confirm` False,
        `max_in_hand` 1,000, `until_idle` None, `tag`, `sql`, `lite_topics` ().

        It pops up to `max_messages` at a time, but no more than the handler settles in a second. It returns at most
        `max_in_hand` deliveries that are not settled yet, for handlers that run concurrently with the loop; a pop for
        which they leave too little room waits up to 10 ms for more, if the pop before found as much as it asked for.
        `on_error` "log": logs a handler's Exception, releases its message with backoff, and continues; "raise":
        releases the message and ends the loop with the Exception. `confirm`: leaving a `with` block waits until the
        outcome is on the broker's disk; otherwise outcomes are sent in the background, several in one request.
        `until_idle`: ends the loop after this many seconds without a message, counted from when the broker has the
        outcome of the last one. `tag`, `sql`, `lite_topics`: as in `pop`.
        Messages of one message group are returned one after another: the next one when the last is settled, also with
        several workers. If one fails, the later messages of its message group are delivered again after it.
        """
        from popmq._async.consuming.consumer import AsyncConsumer  # imported late: programs that never consume skip it
        from popmq._consuming.consumer_settings import consumer_settings

        consumer = AsyncConsumer(self._parts, consumer_settings(topic, group, options))
        self._consumers.add(consumer)
        return consumer

    async def wait_available(
        self,
        topic: str,
        group: str,
        min_ready: int = 1,
        wait: Duration = 0.5,
        upto: Position | None = None,
        *,
        tag: str | None = None,
        sql: str | None = None,
        timeout: Duration | None = None,
    ) -> Availability:
        """Waits up to `wait` (≤ 60 s) until `min_ready` messages are deliverable; 0: answers at once. No lease.

        With `upto` only messages before that position count; `upto` of the answer is the position up to which a bounded
        read may go now. `tag`, `sql`: the filter of later pops. It is validated here, and does not affect the count.
        Raises TopicNotFound, GroupNotFound, FilterConflict, InvalidFilter.
        """
        filter = filter_row(tag, sql)
        return await self._wire.run(
            owner_calls.wait_available(topic, group, min_ready, seconds_of(wait, "wait"), upto, filter), timeout=timeout
        )

    def _guard(self, lease: float) -> Guard:
        parts = self._parts
        return _guarding.Guard(parts.settler, parts.wire.telemetry, "raise", True, lease, parts.clock.now(), self.reply)
