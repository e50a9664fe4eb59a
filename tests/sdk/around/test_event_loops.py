"""AsyncClient, workers and the broker in other event loops than asyncio's own, whose transports are other classes."""

import asyncio
import importlib
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import popmq
from harness.broker_process import own_port
from popmq.testing import Broker
from popmq_server.embedded_broker import EmbeddedBroker
from tests.sdk.conftest import GROUP, TOPIC

In = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]


@pytest.fixture(params=["asyncio", "uvloop"])
def in_loop(request: pytest.FixtureRequest) -> In:
    """Runs a coroutine function in an event loop of this kind, in this thread."""
    module = (
        importlib.import_module(request.param) if request.param == "asyncio" else pytest.importorskip(request.param)
    )

    def run(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        with asyncio.Runner(loop_factory=module.new_event_loop) as runner:
            return runner.run(main())

    return run


async def exchange(client: popmq.AsyncClient) -> list[int]:
    """Sends messages, one of them larger than a read and a window, and consumes them; their sizes."""
    await client.topics.create(TOPIC)
    await client.groups.create(GROUP)
    await client.send(TOPIC, [b"x" * size for size in (1, 3_000_000)])
    sizes = []
    async for delivery in client.consume(TOPIC, GROUP, until_idle=0.1):
        async with delivery:
            sizes.append(len(delivery.body))
    return sorted(sizes)


def test_an_async_client_sends_and_consumes(in_loop: In, popmq_broker: Broker) -> None:
    async def main() -> list[int]:
        async with popmq.AsyncClient(popmq_broker.endpoint) as client:
            return await exchange(client)

    assert in_loop(main) == [1, 3_000_000]


def test_an_async_client_sends_and_consumes_over_tls(in_loop: In, tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data", sync="none", tls_port=own_port()) as broker:

        async def main() -> list[int]:
            async with popmq.AsyncClient(broker.tls_endpoint, tls_ca=broker.certificate) as client:
                return await exchange(client)

        assert in_loop(main) == [1, 3_000_000]


def test_a_worker_serves(in_loop: In, sync_client: popmq.Client) -> None:
    worker = popmq.Worker(sync_client.endpoint)
    handled: list[str] = []

    @worker.on(TOPIC, group=GROUP)
    async def handle(delivery: popmq.Delivery) -> None:
        handled.append(delivery.text())
        worker.stop()

    sync_client.send(TOPIC, "x")
    assert in_loop(worker.serve) is True
    assert handled == ["x"]


def test_an_async_client_tells_that_no_broker_listens(in_loop: In) -> None:
    async def main() -> None:
        timeouts, retry = popmq.Timeouts.all(5.0), popmq.Retry(tries=1)
        async with popmq.AsyncClient(f"127.0.0.1:{own_port()}", timeouts=timeouts, retry=retry) as client:
            with pytest.raises(popmq.errors.Unavailable, match="Connection refused"):
                await client.info()

    in_loop(main)


class WithoutTls(asyncio.SelectorEventLoop):
    """As rloop: it has no TLS."""

    async def create_connection(self, *arguments: Any, ssl: Any = None, **options: Any) -> Any:
        if ssl is not None:
            raise NotImplementedError
        return await super().create_connection(*arguments, **options)


def test_an_event_loop_without_tls_is_named() -> None:
    async def main() -> None:
        retry = popmq.Retry(tries=1)
        async with popmq.AsyncClient(f"localhost:{own_port()}", tls=True, retry=retry) as client:
            with pytest.raises(popmq.errors.Unavailable, match=r"WithoutTls has no connections of this kind \(TLS"):
                await client.info()

    with asyncio.Runner(loop_factory=WithoutTls) as runner:
        runner.run(main())


def test_a_broker_serves_in_the_event_loop_of_the_programs_policy(
    in_loop: In, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """An embedded broker makes its own event loop, of the kind that the program has chosen for all."""
    kind = request.node.callspec.params["in_loop"]
    monkeypatch.setattr(asyncio.events, "new_event_loop", importlib.import_module(kind).new_event_loop)
    with EmbeddedBroker(tmp_path / "data", sync="none") as broker, popmq.Client(broker.endpoint) as client:
        client.topics.create(TOPIC)
        assert client.send(TOPIC, b"x" * 1_000_000).offset == 0


async def test_a_consumer_that_another_thread_stops_begins_no_long_poll(sync_client: popmq.Client) -> None:
    sync_client.send(TOPIC, "x")
    async with popmq.AsyncClient(sync_client.endpoint) as client, client.consume(TOPIC, GROUP) as consumer:
        async with await anext(consumer):
            pass
        stopping = threading.Thread(target=consumer.stop)
        stopping.start()
        stopping.join()  # the event loop has not heard of it yet
        async with asyncio.timeout(10.0):  # in this task: another one would begin after the loop has heard of it
            with pytest.raises(StopAsyncIteration):
                await anext(consumer)
