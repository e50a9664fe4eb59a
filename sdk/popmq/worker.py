"""Worker: functions that handle the messages of topics.

    import popmq

    worker = popmq.Worker("127.0.0.1:8081")

    @worker.on("orders", group="billing", concurrency=8)
    def bill(order: dict[str, int]) -> None: ...             # in one of eight threads

    @worker.on("mails", group="mailer")
    async def send_mail(mail: Mail, delivery: popmq.Delivery) -> None: ...   # a dataclass or a pydantic model

    @worker.on("paid", group="shipper")
    def ship(order: Order) -> popmq.Send: ...                # acks, and sends what it returns, in one commit

    @worker.on("sums", group="adder")
    def add(numbers: list[int]) -> popmq.Result: ...         # acks, and keeps the result for client.result

`popmq work app:worker` runs it. A function that returns acks its message; one that raises releases it with the backoff
of its group, and after its `max_attempts` the message is a dead letter. Leases are renewed meanwhile.
"""

import asyncio
import inspect
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar, Unpack

from popmq._async.client import AsyncClient
from popmq._async.concurrency import finished
from popmq._worker.declaring import declare_missing
from popmq._worker.handlers import Handler, handler_of
from popmq._worker.middleware import checked_middleware
from popmq._worker.running import Run
from popmq._worker.stuck import report
from popmq.config import DEFAULT_ENDPOINT, ConsumeOptions, variable
from popmq.duration import Duration, seconds_or_none
from popmq.message import Delivery

log = logging.getLogger("popmq.worker")

Function = TypeVar("Function", bound=Callable[..., Any])


class Middleware:
    """What happens around every handler. Override what is needed; each method may be a coroutine function."""

    def started(self, worker: "Worker") -> Any:
        """Once, before the first message."""

    def before(self, delivery: Delivery) -> Any:
        """Before the payload is converted. What it raises counts as raised by the handler, which is not called."""

    def after(self, delivery: Delivery, result: Any) -> Any:
        """The handler returned `result`; the message is acked next. An error here is only logged."""

    def failed(self, delivery: Delivery, error: Exception) -> Any:
        """`before`, the conversion or the handler raised; the message is released or rejected next."""

    def stopped(self, worker: "Worker") -> Any:
        """Once, after the last message."""


class Worker:
    """Handlers of messages, and the loop that runs them.

    `endpoint`: else POPMQ_ENDPOINT, else 127.0.0.1:8081. `middleware`: around every handler, the first one outermost.
    `options`: of the AsyncClient that the worker makes, such as `tls`, `access_key`, `retry`.
    """

    def __init__(self, endpoint: str | None = None, *, middleware: Sequence[Middleware] = (), **options: Any) -> None:
        inspect.signature(AsyncClient).bind("", **options)  # a TypeError that names the wrong one
        if not isinstance(endpoint, str | None):
            raise TypeError(f"the endpoint is {endpoint!r}, of type {type(endpoint).__name__}: give a str, host:port")
        self.endpoint = endpoint
        self.handlers: list[Handler] = []
        self.middleware = [checked_middleware(each) for each in middleware]
        self._options = options
        self._run: Run | None = None
        self._stops = 0
        self._drain: float | None = None

    def on(
        self,
        topic: str,
        *,
        group: str,
        concurrency: int = 8,
        convert: Callable[[Delivery], Any] | None = None,
        timeout: Duration | None = None,
        **options: Unpack[ConsumeOptions],
    ) -> Callable[[Function], Function]:
        """Registers a function or a coroutine function for the messages of `topic`, which stays callable as it is.

        Up to `concurrency` messages are handled at a time: functions in as many threads, coroutine functions in the
        event loop. Its parameters say what it gets: `popmq.Delivery` (or no annotation) the delivery, `bytes` and
        `str` the body, another type the body's JSON as that type: dataclasses, TypedDicts, pydantic models and msgspec
        structs among them. A body that is not of this type is rejected, since no further try would change it.
        A `popmq.Send` that it returns, a `popmq.Result`, or a list of them, is sent and kept in the same commit as the
        ack of the message.
        `convert`: makes the payload instead. `timeout`: a handler that runs longer has failed, and its message is
        released, "timed out after 30 s"; a coroutine is cancelled, a thread is left behind, since nothing can end it.
        `options`: of `client.consume`, such as `tag`, `sql`, `invisible`.
        Raises TypeError for a function that takes something else, and for an option that `client.consume` does not
        have; InvalidField for one out of range; ValueError for a second one of the same topic and
        group, since each message would go to one of the two.
        """

        def register(function: Function) -> Function:
            made = handler_of(function, topic, group, concurrency, convert, options, timeout)
            for each in self.handlers:
                if (each.topic, each.group) == (topic, group) and not {"lite_topics"} & (each.options.keys() | options):
                    raise ValueError(
                        f"{each.name} handles topic {topic!r} for group {group!r} already: give {made.name} a group of "
                        "its own, and it gets each message, too; for more at a time raise `concurrency`"
                    )
            self.handlers.append(made)
            return function

        return register

    def asyncapi(self, title: str = "worker", version: str = "0", *, endpoint: str | None = None) -> dict[str, Any]:
        """An AsyncAPI 3.0 document of the handlers: topics, groups, and the JSON Schema of each payload, by its type.

        `endpoint`: of the server; else that of the worker. `popmq work app:worker --asyncapi` prints it.
        """
        from popmq._worker.describing import asyncapi  # which a worker that runs does not need

        return asyncapi(
            self.handlers, endpoint or self.endpoint or variable("endpoint") or DEFAULT_ENDPOINT, title, version
        )

    def use(self, middleware: Middleware) -> None:
        """Adds a middleware inside those that are there. Raises TypeError."""
        self.middleware.append(checked_middleware(middleware))

    def client(self) -> AsyncClient:
        """A new client as this worker uses it."""
        return AsyncClient(self.endpoint, **self._options)

    async def serve(self, client: AsyncClient | None = None, *, declare: bool = False) -> bool:
        """Handles messages in the running event loop until `stop`. False: it was stopped at once, not drained.

        `client`: used instead of the worker's own, and closed at the end. `declare`: first creates the topics and
        groups of the handlers that are not there, with default settings. A handler that names another filter than its
        group has in the topic stops alone, with an error in the log. If a topic or group is deleted, it drains; then it
        raises TopicNotFound, GroupNotFound, …
        """
        try:
            async with client or self.client() as client, self.ready():
                if declare:
                    await declare_missing(client, self.handlers)
                self._run = Run(client, self.handlers, self.middleware, drain=self._drain)
                if self._stops:  # by one of `started`, or by a signal meanwhile
                    self._run.stop()
                return await self._run.work()
        finally:
            self._run = None  # not before: a second stop also ends the closing of the client
            self._stops = 0

    def run(self, client: AsyncClient | None = None, drain: Duration | None = None, *, declare: bool = False) -> bool:
        """Handles messages until SIGTERM, SIGINT or SIGHUP: the first signal drains, the second one stops at once.

        `drain`: how long the first one, or an error, waits for what runs before it stops at once. Returns and raises as
        `serve`; False leaves threads running in which handlers still work. Call it in the main thread.
        """
        return asyncio.run(self._run_by_signals(client, seconds_or_none(drain, "drain"), declare))

    def unready(self) -> str:
        """Why this worker does not handle the messages of all its handlers now, as a sentence; "" if it does.

        For a readiness probe of a program that runs `serve`; `popmq work --health-port` answers its probe so.
        """
        if self._stops:
            return "draining"
        return self._run.unready() if self._run is not None else "not started"

    def at_work(self) -> str:
        """The handlers that run now, as a text: each with its message, how long it runs, and its stack.

        From any thread, and from a signal handler; `popmq work` prints it at SIGQUIT.
        """
        return report(self._run.at_work() if self._run is not None else ())

    def stop(self) -> None:
        """Drains: begins no further message, finishes what runs. The second call stops at once. From any thread.

        Before `serve` it ends the next one as soon as that is connected: a signal may come first.
        """
        self._stops += 1
        if self._run is None:
            return
        if self._stops == 1:
            self._run.stop()
        else:
            self._run.stop_now()

    async def _run_by_signals(self, client: AsyncClient | None, drain: float | None, declare: bool) -> bool:
        loop, self._drain = asyncio.get_running_loop(), drain

        def stop() -> None:
            self.stop()
            if self._stops == 1:
                log.info("draining: what runs is finished; a second signal ends it at once")
                if drain is not None:
                    loop.call_later(drain, self.stop)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` has it
                loop.add_signal_handler(number, stop)
        with self._told_by_sigquit():
            return await self.serve(client, declare=declare)

    @contextmanager
    def _told_by_sigquit(self) -> Iterator[None]:
        """Prints what runs at SIGQUIT. The event loop is not asked: a handler may block it."""
        before = signal.getsignal(signal.SIGQUIT)
        if before is not signal.SIG_DFL:  # the program has one of its own, or ignores it
            yield
            return

        def tell(*_: object) -> None:
            os.write(2, f"process {os.getpid()}: {self.at_work()}".encode(errors="backslashreplace"))

        signal.signal(signal.SIGQUIT, tell)
        try:
            yield
        finally:
            signal.signal(signal.SIGQUIT, before)

    @asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Between `started` and `stopped` of its middleware. Raises RuntimeError for a worker without a handler."""
        if not self.handlers:
            raise RuntimeError("this worker has no handler: register one with @worker.on(topic, group=…)")
        for each in self.middleware:
            await finished(each.started(self))
        try:
            yield
        finally:
            for each in reversed(self.middleware):
                await finished(each.stopped(self))
