"""A pop whose caller is cancelled, or interrupted by Ctrl-C, while the broker leases messages to it."""

import asyncio
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

import pytest

import popmq
from popmq.testing import Broker
from tests.sdk.conftest import GROUP, TOPIC, eventually

InLoop = resolve_name("popmq._async.transport.channel:PythonChannel")
CLOSE_S: float = resolve_name("popmq._async.transport.wire:CLOSE_S")
InThreads = resolve_name("popmq._sync.transport.channel:PythonChannel")
CANCELLED: dict[str, type[BaseException]] = {"async": asyncio.CancelledError, "sync": KeyboardInterrupt}


@pytest.fixture
def cancel(monkeypatch: pytest.MonkeyPatch, kind: str) -> Callable[[], None]:
    """The caller of the next pop is cancelled just when its answer comes."""
    pending: list[type[BaseException]] = []

    def answered(method: str) -> None:
        if method == "Broker.Pop" and pending:
            raise pending.pop()

    async def in_loop(self: Any, method: str, *rest: Any, _real: Any = InLoop.unary) -> Any:
        answer = await _real(self, method, *rest)
        answered(method)
        return answer

    def in_threads(self: Any, method: str, *rest: Any, _real: Any = InThreads.unary) -> Any:
        answer = _real(self, method, *rest)
        answered(method)
        return answer

    monkeypatch.setattr(InLoop, "unary", in_loop)
    monkeypatch.setattr(InThreads, "unary", in_threads)
    return lambda: pending.append(CANCELLED[kind])


@pytest.mark.promise("uncounted")
@pytest.mark.parametrize("topic_type", ["NORMAL", "FIFO"])
async def test_a_pop_whose_caller_is_cancelled_releases_its_messages_uncounted(
    connect: Any, client: Any, cancel: Callable[[], None], kind: str, topic_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    fifo = topic_type == "FIFO"
    await client.topics.create("letters", type=topic_type)
    await client.send("letters", [popmq.Message(text, message_group="a" if fifo else "") for text in "abc"])
    reader = connect()
    cancel()
    with pytest.raises(CANCELLED[kind]):
        await reader.pop("letters", GROUP, max_messages=2)
    await reader.close()
    again = await client.pop("letters", GROUP)
    assert sorted((each.text(), each.attempt) for each in again) == [("a", 1), ("b", 1), ("c", 1)]
    assert "came too late" not in caplog.text


@pytest.mark.parametrize("kind", ["async"])  # the caller of a blocking pop waits for its release
async def test_a_cancelled_pop_takes_nothing_of_the_time_that_closing_has(
    connect: Any, client: Any, popmq_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client may be closed much later, just when its broker is back."""
    monkeypatch.setattr("popmq._async.consuming.settler.CLOSE_S", 0.01)
    reader = connect()
    await reader.topics.list()
    await asyncio.to_thread(popmq_broker.stop)
    popping = asyncio.create_task(reader.pop(TOPIC, GROUP, wait=20.0))

    async def is_away() -> bool:
        await asyncio.sleep(0)
        return bool(reader._wire.away())

    await eventually(is_away)
    popping.cancel()
    await asyncio.wait([popping])
    await reader._parts.settler._errands.done(None)
    assert reader._wire.closing_left() == pytest.approx(CLOSE_S, abs=1e-6)
    await asyncio.to_thread(popmq_broker.start)


async def test_a_cancelled_pop_with_an_attempt_id_of_the_caller_keeps_its_messages(
    client: Any, cancel: Callable[[], None], kind: str
) -> None:
    await client.send(TOPIC, "x")
    cancel()
    with pytest.raises(CANCELLED[kind]):
        await client.pop(TOPIC, GROUP, attempt_id="mine")
    (delivery,) = await client.pop(TOPIC, GROUP, attempt_id="mine")
    assert delivery.attempt == 1
