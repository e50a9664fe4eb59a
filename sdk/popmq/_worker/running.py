"""One run of a worker: a consumer for each handler, and as many tasks on it as the handler has concurrency.

    consumer ──▶ task ─▶ before ─▶ convert ─▶ function (in the loop, or in the task's thread) ─▶ after ─▶ ack
             ──▶ task                                        │ raises
             ──▶ …                                           └─▶ failed ─▶ release with backoff, or as the error says

A handler with a `timeout` that passes it has failed: stuck.py.

`stop` ends the consumers: what was popped and not begun is visible to others at once, what runs is finished.
`stop_now` cancels the tasks: their messages are visible to others at once, and the attempt does not count. What the
broker has not answered a second later is given up, and all of it while the broker is away.
"""

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from popmq._async.client import AsyncClient
from popmq._async.concurrency import ends_this_task, finished
from popmq._async.consuming.consumer import AsyncConsumer
from popmq._calls import requests
from popmq._worker.handlers import Handler
from popmq._worker.middleware import Hooks
from popmq._worker.stuck import Running, TimedOut, within
from popmq._worker.threads import CallingThread
from popmq.config import ConsumeOptions
from popmq.errors import FilterConflict, InvalidField, PopMQError
from popmq.message import Delivery, Send
from popmq.outcome import BadPayload, Reject, Result
from popmq_http2.elapsed import monotonic

#: Seconds of work that may be held ahead.
AHEAD_S = 0.1
#: The share of the last message in the mean duration.
WEIGHT = 0.1


class Pace:
    """How fast one handler works, which says how many messages to hold: those that it handles, and the next few.

    A process that held more would keep them from idle processes for as long as its handlers run: minutes or hours,
    since the leases of what it holds are renewed. Handlers that take a millisecond need a stock, or each would wait for
    a pop.
    """

    def __init__(self, concurrency: int, most: int, clock: Callable[[], float] = monotonic) -> None:
        self._concurrency = concurrency
        self._most = max(most, concurrency)
        self._clock = clock
        self._mean: float | None = None  # seconds; None: nothing was finished yet
        self._running: dict[int, float] = {}  # when each delivery began; the oldest is the first

    def begin(self, delivery: int) -> None:
        """The handler was called."""
        self._running[delivery] = self._clock()

    def end(self, delivery: int) -> None:
        """It returned or raised."""
        took = self._clock() - self._running.pop(delivery)
        self._mean = took if self._mean is None else self._mean + WEIGHT * (took - self._mean)

    def limit(self) -> int:
        """How many messages to hold, those that are handled included."""
        if self._mean is None:
            return self._concurrency
        oldest = next(iter(self._running.values()), None)
        running = self._clock() - oldest if oldest is not None else 0.0
        seconds = max(self._mean, running, AHEAD_S / self._most)
        return min(self._most, self._concurrency + int(self._concurrency * AHEAD_S / seconds))


log = logging.getLogger("popmq.worker")

#: Seconds that the broker has after `stop_now`.
NOW_S = 1.0

#: How many messages of a topic a worker holds at most, as `client.consume` does.
HELD_MAX = 1000


class Run:
    """The handlers of one worker at work, in the running event loop, until it is stopped."""

    def __init__(
        self,
        client: AsyncClient,
        handlers: Sequence[Handler],
        middleware: Sequence[Hooks],
        until_idle: float | None = None,
        drain: float | None = None,
    ) -> None:
        self._client = client
        self._drain = drain
        self._handlers = handlers
        self._middleware = middleware
        self._loop = asyncio.get_running_loop()
        self._ends_when_idle = until_idle is not None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped_now = False
        self._draining = asyncio.Event()
        self._running: dict[object, Running] = {}  # by the task of the slot; names repeat: one function, two topics
        self._left: dict[int, dict[CallingThread, Running]] = {}  # by handler, threads past their time limit
        self._filtered_out = set[int]()  # handlers that stopped because of their filter
        self._consumers = [
            client.consume(each.topic, each.group, **_ending(each.options, until_idle)) for each in handlers
        ]

    async def work(self) -> bool:
        """Handles messages until `stop`. False: `stop_now` ended it before what ran was finished.

        Raises the error of a consumer, such as GroupNotFound, after the others have drained, for `drain` at most.
        """
        for handler, consumer in zip(self._handlers, self._consumers, strict=True):
            log.info("%s handles %s for %s, %d at a time", *_about(handler))
            pace = Pace(handler.concurrency, handler.options.get("max_in_hand", HELD_MAX))
            consumer.hold_at_most(pace.limit)
            for slot in range(handler.concurrency):
                name = f"popmq-{handler.name}-{slot}"
                self._tasks.append(asyncio.create_task(self._slot(handler, consumer, pace, name), name=name))
        try:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
            if error := self._error():
                self._drain_after(error)
            await asyncio.wait(self._tasks)
        finally:
            self._cancel()  # those that are done are not affected
            await asyncio.wait(self._tasks)
        if error := self._error():
            raise error
        return not self._stopped_now

    def _error(self) -> BaseException | None:
        """Of the first task that has one."""
        ended = [task for task in self._tasks if task.done() and not task.cancelled()]
        return next(filter(None, (task.exception() for task in ended)), None)

    def _drain_after(self, error: BaseException) -> None:
        """Lets the other handlers finish what they run: it is not of the topic or group that is gone."""
        log.error("draining, since a handler cannot go on: %s", error)
        self.stop()
        if self._drain is not None:
            self._loop.call_later(self._drain, self.stop_now)

    def unready(self) -> str:
        """Why not every handler is at work, as a sentence; "" if all are."""
        if self._draining.is_set():
            return "draining"
        for handler in self._handlers:
            if id(handler) in self._filtered_out:
                return f"{handler.name} has stopped: the group {handler.group} has another filter in {handler.topic}"
        if self._client._wire.away():
            return "the broker does not answer"
        if not all(consumer._started for consumer in self._consumers):
            return "not connected yet"
        return ""

    def at_work(self) -> list[Running]:
        """The handlers that run, also those that were left behind."""
        left = (each for some in self._left.values() for each in some.items())
        return [*self._running.values(), *(running for thread, running in left if thread.is_busy)]

    def stop(self) -> None:
        """Drains. From any thread."""
        self._loop.call_soon_threadsafe(self._draining.set)
        for consumer in self._consumers:
            consumer.stop()

    def stop_now(self) -> None:
        """Ends what runs. From any thread."""
        self._stopped_now = True
        self._loop.call_soon_threadsafe(self._end_now)

    def _end_now(self) -> None:
        self._cancel()
        self._cut = self._loop.create_task(_cut_off(self._client))

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _slot(self, handler: Handler, consumer: AsyncConsumer, pace: Pace, name: str) -> None:
        """Handles one message after the other."""
        thread = None if handler.is_coroutine else CallingThread(name)
        try:
            while True:
                if thread is not None and thread.is_busy:
                    thread = await self._another_thread(handler, name)
                    if thread is None:
                        return
                try:
                    delivery = await anext(consumer)
                except StopAsyncIteration:
                    return
                except FilterConflict as error:
                    self._stopped_by_filter(handler, error)
                    return
                pace.begin(id(delivery))
                task = asyncio.current_task()
                self._running[task] = running = Running(
                    handler, delivery, task, thread, monotonic(), threading.get_ident()
                )
                try:
                    async with delivery:
                        await self._handle(handler, delivery, thread)
                finally:
                    pace.end(id(delivery))
                    del self._running[task]
                    if thread is not None and thread.is_busy:
                        self._left.setdefault(id(handler), {})[thread] = running
                        thread.end()
        finally:
            if thread is not None:
                thread.end()

    async def _another_thread(self, handler: Handler, name: str) -> CallingThread | None:
        """A thread for a slot whose last one still runs. None: too many do, and the worker drains or ends when idle."""
        left = self._left[id(handler)]
        while len(left) > handler.concurrency:
            if self._ends_when_idle:
                return None
            log.error("%s does not go on: %d of its threads are past their time limit", handler.name, len(left))
            waits = [asyncio.create_task(wait) for wait in (self._draining.wait(), *(each.idle() for each in left))]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            for thread in [each for each in left if not each.is_busy]:
                del left[thread]
            if self._draining.is_set() and len(left) > handler.concurrency:
                return None
        return CallingThread(name)

    def _stopped_by_filter(self, handler: Handler, error: FilterConflict) -> None:
        """The group's filter was changed, or the handler's: this handler stops. Raises the error for the last one."""
        first = id(handler) not in self._filtered_out
        self._filtered_out.add(id(handler))
        if len(self._filtered_out) == len(self._handlers):
            raise error
        if first:
            log.error("%s handles no more messages of %s, the other handlers go on: %s", *_about(handler)[:2], error)

    async def _handle(self, handler: Handler, delivery: Delivery, thread: CallingThread | None) -> None:
        """Raises what the function or a middleware raised, for the guard of the delivery, which settles it and logs."""
        begun: list[Hooks] = []
        try:
            result = await _called(handler, delivery, thread, self._middleware, begun)
            if given := given_in(result, handler.name):
                for each in given:
                    if isinstance(each, Send):
                        delivery.forward(*each.messages, topic=each.topic)
                        continue
                    delivery._guarded().give(delivery, each)
                    if each.body and requests.wants_reply(delivery):
                        await self._reply(delivery, each.body)
            elif result is not None and requests.wants_reply(delivery):
                await self._reply(delivery, result)
        except Exception as raised:
            error = raised  # the name after `as` ends with its block, before the lambda in the eyes of a checker
            await _hooks(begun, lambda each: each.failed(delivery, error))
            await self._refuse(delivery, error)
            if not isinstance(error, TimedOut):
                raise
            log.error("message %s of %s %s", delivery.message_id, delivery.topic, error.reason)
            delivery.release(reason=error.reason)
        else:
            await _hooks(begun, lambda each: each.after(delivery, result))

    async def _reply(self, delivery: Delivery, result: Any) -> None:
        """Raises Reject for a value that cannot be a reply: the function would only return another like it."""
        try:
            await self._client.reply(delivery, requests.as_message(result))
        except (TypeError, ValueError, InvalidField) as error:
            raise Reject(f"what the handler returned cannot be the reply: {error}") from error

    async def _refuse(self, delivery: Delivery, error: Exception) -> None:
        """Tells who waits for a reply that there will be none, since the message is a dead letter now."""
        if isinstance(error, Reject | BadPayload) and requests.wants_reply(delivery):
            topic, answer = requests.reply(delivery, "rejected", str(error) or "without a reason")
            try:
                await self._client.send(topic, answer)
            except PopMQError as refused:
                log.warning("the refusal of request %s could not be sent: %s", delivery.message_id, refused)


def given_in(result: Any, name: str) -> Sequence[Send | Result]:
    """What a handler returned for its ack: Sends, a Result, or a list of them. Raises TypeError for a mixed one."""
    if isinstance(result, Send | Result):
        return [result]
    if not isinstance(result, list | tuple | set | frozenset):
        return ()
    given = [each for each in result if isinstance(each, Send | Result)]
    if given and len(given) < len(result):
        raise TypeError(f"{name} returned popmq.Send or popmq.Result objects and others in one {type(result).__name__}")
    if sum(isinstance(each, Result) for each in given) > 1:
        raise TypeError(f"{name} returned several popmq.Result objects: a message has one result")
    return given


async def _cut_off(client: AsyncClient) -> None:
    """Closes the connection, so that closing the client waits for nothing."""
    wire = client._wire
    if not wire.away():
        await asyncio.sleep(NOW_S)
    await wire.close()


async def _called(
    handler: Handler, delivery: Delivery, thread: CallingThread | None, middleware: Sequence[Hooks], begun: list[Hooks]
) -> Any:
    """What the function returns; what that is, if it can be awaited, such as the coroutine that a decorator passes on.

    What it or a middleware before it raises to end more than itself becomes an error, so that it does not end the
    worker: SystemExit, KeyboardInterrupt, a cancelling of its own, and others that are no Exception, such as a panic of
    a native library. `begun` gets the middleware that was asked.
    """
    try:
        for each in middleware:
            begun.append(each)
            await finished(each.before(delivery))
        arguments = handler.arguments(delivery)
        if handler.timeout is not None:
            result = await within(handler, arguments, thread)
        else:
            made = handler.function(*arguments) if thread is None else thread.call(handler.function, *arguments)
            result = await finished(await made)
        if inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise TypeError(f"{handler.name} returned a generator, of which nothing has run")
        return result
    except Exception:
        raise
    except BaseException as error:
        if ends_this_task(error):
            raise
        cancelled = isinstance(error, asyncio.CancelledError)
        what = "was cancelled by what it awaited" if cancelled else f"raised {error!r}"
        raise RuntimeError(f"{handler.name} {what}") from error


async def _hooks(middleware: Sequence[Hooks], call: Callable[[Hooks], Any]) -> None:
    """Runs a hook of each middleware that began, the last one first. Errors are logged; the outcome stays the same."""
    for each in reversed(middleware):
        try:
            await finished(call(each))
        except BaseException as error:
            if ends_this_task(error):
                raise
            log.exception("%s failed; the message ends as its handler did", type(each).__qualname__)


def _ending(options: ConsumeOptions, until_idle: float | None) -> ConsumeOptions:
    """The options of a handler, whose loop ends after `until_idle` seconds if this is given."""
    return options if until_idle is None else {**options, "until_idle": until_idle}


def _about(handler: Handler) -> tuple[str, str, str, int]:
    return handler.name, handler.topic, handler.group, handler.concurrency
