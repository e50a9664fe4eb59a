"""freezegun stops the clocks of `time`: timeouts, pauses and background work go on by the machine's clock."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import popmq
import popmq.testing
from harness.broker_process import own_port
from popmq.testing import Broker
from popmq_server.clock import SystemClock
from popmq_server.embedded_broker import EmbeddedBroker
from tests.sdk.calling.lossy import LOSE, REFUSE, LossyWire
from tests.sdk.conftest import GROUP, TOPIC, Connect, guarding

freezegun = pytest.importorskip("freezegun")
#: What a test may take that waits for a tenth of a second.
pytestmark = pytest.mark.timeout(60)
MOMENT = datetime(2020, 2, 29, tzinfo=UTC)
SHORT_S = 0.2


@pytest.fixture
def stopped() -> Callable[[], Any]:
    """Stops the clocks in a `with` block. Timers of an event loop stop, too, unless it is `real_asyncio`."""
    return lambda: freezegun.freeze_time(MOMENT, real_asyncio=True)


@pytest.fixture
async def still(client: Any, stopped: Callable[[], Any]) -> AsyncIterator[Any]:
    """A client of each kind, in a program whose clocks stand still."""
    with stopped():
        before = time.monotonic()
        yield client
        assert (time.monotonic(), time.time()) == (before, MOMENT.timestamp()), "they stood still all the time"


@pytest.fixture
def silent() -> Iterator[str]:
    """The endpoint of somebody who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield f"127.0.0.1:{taken.getsockname()[1]}"


async def test_sends_pops_and_acks_end(still: Any) -> None:
    await asyncio.gather(*(still.send(TOPIC, f"{number}") for number in range(20)))
    deliveries = await still.pop(TOPIC, GROUP, max_messages=20)
    assert len(deliveries) == 20
    await still.ack(deliveries)


async def test_a_pop_and_a_pull_that_find_nothing_end_with_their_wait(still: Any) -> None:
    assert await still.pop(TOPIC, GROUP, wait=SHORT_S) == []
    assert (await still.pull(TOPIC, "", 0, 0, wait=SHORT_S)).next_offset == 0


async def test_a_request_without_a_reply_ends_with_its_timeout(still: Any) -> None:
    with pytest.raises(popmq.errors.DeadlineExceeded):
        await still.request(TOPIC, "are you there?", timeout=SHORT_S)


async def test_a_call_ends_with_its_deadline(connect: Connect, silent: str, stopped: Callable[[], Any]) -> None:
    with stopped():
        client = connect(silent, timeouts=popmq.Timeouts.all(SHORT_S))
        with pytest.raises((popmq.errors.Unavailable, popmq.errors.DeadlineExceeded)):
            await client.send(TOPIC, "x")


async def test_tries_that_reach_nobody_end_with_the_timeout(connect: Connect, stopped: Callable[[], Any]) -> None:
    with stopped():
        client = connect(f"127.0.0.1:{own_port()}", timeouts=popmq.Timeouts.all(SHORT_S))
        with pytest.raises(popmq.errors.Unavailable):
            await client.topics.list()


async def test_a_client_comes_back_to_a_broker_that_was_away(popmq_broker: Broker, still: Any) -> None:
    await still.send(TOPIC, "before")
    popmq_broker.stop()
    with pytest.raises(popmq.errors.Unavailable):
        await still.send(TOPIC, "while it is away", timeout=SHORT_S)
    await asyncio.to_thread(popmq_broker.start)
    await still.send(TOPIC, "after")
    assert len(await still.pop(TOPIC, GROUP, max_messages=3)) == 2


async def test_a_call_that_is_refused_is_tried_again_after_a_pause(
    connect: Connect, client: Any, wire: LossyWire, stopped: Callable[[], Any]
) -> None:
    wire.plan["Send"] = [REFUSE, LOSE, REFUSE]
    with stopped():
        other = connect(wire.endpoint)
        await other.send(TOPIC, "x")
        assert other.client_stats().retries == 3


@pytest.mark.promise("statistics")
async def test_a_loop_gets_idle_and_its_outcomes_reach_the_broker(
    still: Any, kind: str, numbers: Callable[[], Any]
) -> None:
    await still.send(TOPIC, ["one", "two"])
    handled = []
    async for delivery in still.consume(TOPIC, GROUP, until_idle=SHORT_S):
        async with guarding(delivery, kind):
            handled.append(delivery.text())
    assert sorted(handled) == ["one", "two"]
    assert (await numbers()).acked == 2


async def test_what_a_loop_that_ends_has_not_sent_yet_is_sent_or_given_up(
    popmq_broker: Broker, connect: Connect, client: Any, kind: str, stopped: Callable[[], Any]
) -> None:
    """The outcomes are sent in the background, and closing waits for them: here in vain."""
    await client.send(TOPIC, "one")
    with stopped():
        other = connect(timeouts=popmq.Timeouts.all(SHORT_S))
        async for delivery in other.consume(TOPIC, GROUP, until_idle=SHORT_S):
            with contextlib.suppress(popmq.errors.PopMQError):
                async with guarding(delivery, kind):
                    popmq_broker.stop()
            break
        await other.close()


# ── A broker in the process ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_broker_of_a_test_goes_by_the_clock_of_the_machine(popmq_broker: Broker) -> None:
    """Also without `real_asyncio`: its event loop has a clock of its own."""
    with freezegun.freeze_time(MOMENT), popmq_broker.client() as client:
        client.topics.create(TOPIC)
        client.groups.create(GROUP)
        client.send(TOPIC, "x")
        assert client.pop(TOPIC, GROUP, invisible=1.0)
        (again,) = client.pop(TOPIC, GROUP, wait=10.0)
        assert again.attempt == 2, "the lease has expired"
        client.ack(again)
        assert client.pop(TOPIC, GROUP, wait=SHORT_S) == []
        assert again.born_ms == MOMENT.timestamp() * 1000, "the message was made at the moment of the test"


def test_a_broker_that_starts_while_the_clocks_stand_still_has_the_right_time(tmp_path: Path) -> None:
    machine_ms = SystemClock().wall_ms()
    with freezegun.freeze_time(MOMENT), popmq.testing.broker() as broker, broker.client() as client:
        client.topics.create(TOPIC)
        assert client.send(TOPIC, "x")
        (message,) = client.messages.browse(TOPIC).deliveries
        assert message.stored_ms >= machine_ms


def test_calls_with_an_access_key_are_signed_with_the_time_of_the_machine(tmp_path: Path) -> None:
    """The broker refuses a proof of another year."""
    keys = tmp_path / "keys.toml"
    keys.touch(0o600)
    keys.write_text('[root]\nsecret = "a-secret-for-this-test-only"\nallow = ["*"]\n')
    with (
        EmbeddedBroker(tmp_path / "data", sync="none", access_keys=keys) as broker,
        freezegun.freeze_time(MOMENT),
        popmq.Client(broker.endpoint, access_key="root", secret="a-secret-for-this-test-only") as client,
    ):
        client.topics.create(TOPIC)


PROGRAM = """
import freezegun

with freezegun.freeze_time("2020-02-29"):
    import popmq.testing

    with popmq.testing.broker() as broker, broker.client() as client:
        client.topics.create("t")
        client.groups.create("g")
        client.send("t", "x")
        for delivery in client.consume("t", "g", until_idle=0.1):
            with delivery:
                print(delivery.text())
"""


@pytest.mark.process
def test_a_program_that_imports_the_library_while_its_clocks_stand_still_ends() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "x\n"), done.stderr
