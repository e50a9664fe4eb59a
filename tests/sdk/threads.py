"""A Client spoken to by `await`: each call in a thread of its own, so that one test text serves both clients."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import popmq


class InThreads:
    """Wraps a Client."""

    def __init__(self, client: popmq.Client, pool: ThreadPoolExecutor) -> None:
        self._client = client
        self._pool = pool

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        return _threaded(found, self._pool) if callable(found) else CallsInThreads(found, self._pool)

    @property
    def client_id(self) -> str:
        return self._client.client_id

    def client_stats(self) -> popmq.ClientStats:
        return self._client.client_stats()

    def consume(self, *arguments: Any, **options: Any) -> "ConsumerInThreads":
        return ConsumerInThreads(self._client.consume(*arguments, **options), self._pool)

    def pull_consume(self, *arguments: Any, **options: Any) -> "ConsumerInThreads":
        return ConsumerInThreads(self._client.pull_consume(*arguments, **options), self._pool)

    def broadcast_consume(self, *arguments: Any, **options: Any) -> "ConsumerInThreads":
        return ConsumerInThreads(self._client.broadcast_consume(*arguments, **options), self._pool)

    def transaction(self, *arguments: Any, **options: Any) -> "TransactionInThreads":
        return TransactionInThreads(self._client.transaction(*arguments, **options), self._pool)


class CallsInThreads:
    """Wraps a namespace of a Client."""

    def __init__(self, calls: Any, pool: ThreadPoolExecutor) -> None:
        self._calls = calls
        self._pool = pool

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._calls, name)
        return found if name == "on_check" else _threaded(found, self._pool)  # in both clients it does not wait


class TransactionInThreads:
    """Wraps a Transaction."""

    def __init__(self, transaction: popmq.Transaction, pool: ThreadPoolExecutor) -> None:
        self._transaction = transaction
        self.send = _threaded(transaction.send, pool)
        self.commit = _threaded(transaction.commit, pool)
        self.rollback = _threaded(transaction.rollback, pool)
        self._leave = _threaded(transaction.__exit__, pool)

    @property
    def receipts(self) -> list[popmq.SendReceipt]:
        return self._transaction.receipts

    async def __aenter__(self) -> Self:
        self._transaction.__enter__()
        return self

    async def __aexit__(self, *how: Any) -> None:
        await self._leave(*how)


class ConsumerInThreads:
    """Wraps a Consumer, or a PullConsumer."""

    def __init__(self, consumer: Any, pool: ThreadPoolExecutor) -> None:
        self._consumer = consumer
        self._pool = pool
        self.stop = consumer.stop
        self.close = _threaded(consumer.close, pool)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)  # what does not wait

    async def __aiter__(self) -> AsyncIterator[popmq.Delivery]:
        iterator = iter(self._consumer)
        try:
            while (delivery := await _threaded(next, self._pool)(iterator, None)) is not None:
                yield delivery
        finally:
            await _threaded(iterator.close, self._pool)()

    async def __anext__(self) -> popmq.Delivery:
        delivery: popmq.Delivery | None = await _threaded(next, self._pool)(self._consumer, None)
        if delivery is None:
            raise StopAsyncIteration
        return delivery

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _threaded(function: Callable[..., Any], pool: ThreadPoolExecutor) -> Callable[..., Any]:
    async def call(*arguments: Any, **options: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(pool, lambda: function(*arguments, **options))

    return call
