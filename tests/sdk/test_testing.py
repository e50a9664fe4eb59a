"""popmq.testing: a real broker for users' tests."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import popmq
import popmq.testing
from popmq import errors
from popmq.testing import Broker, FakeClock

pytest_plugins = ["pytester"]


def test_a_lease_of_an_hour_ends_when_the_clock_is_moved(popmq_broker: Broker, popmq_clock: FakeClock) -> None:
    client = popmq_broker.client()
    client.topics.create("orders")
    client.groups.create("billing")
    client.send("orders", b"x")
    (first,) = client.pop("orders", "billing", invisible=3600.0)
    assert first.invisible_until_ms == popmq_clock.now_ms() + 3_600_000
    popmq_clock.advance(3_600_000)
    assert client.pop("orders", "billing")[0].attempt == 2


@pytest.mark.slow
@pytest.mark.parametrize("hour", [3_600_000, timedelta(hours=1), "1h", "59m60s"])
def test_the_clock_is_moved_by_milliseconds_a_timedelta_or_a_text(hour: int | timedelta | str) -> None:
    clock = FakeClock()
    began_ms = clock.now_ms()
    clock.advance(hour)
    assert clock.now_ms() == began_ms + 3_600_000


def test_a_broker_without_the_clock_fixture_has_real_time(popmq_broker: Broker) -> None:
    assert popmq_broker.clock is None
    client = popmq_broker.client()
    client.topics.create("orders")
    client.groups.create("billing")
    assert client.pop("orders", "billing", wait=0.05) == []


@pytest.mark.slow
def test_a_broker_of_a_with_block_is_gone_after_it() -> None:
    with popmq.testing.broker() as broker:
        client = broker.client()
        client.topics.create("orders")
    with pytest.raises(errors.ClientClosed):
        client.topics.list()
    with popmq.Client(broker.endpoint, timeouts=popmq.Timeouts.all(1.0)) as other, pytest.raises(errors.Unavailable):
        other.topics.list()


@pytest.mark.slow
def test_two_brokers_do_not_see_each_other() -> None:
    with popmq.testing.broker() as one, popmq.testing.broker() as two:
        one.client().topics.create("orders")
        assert two.client().topics.list() == []


def test_a_restarted_broker_has_its_endpoint_and_its_messages(popmq_broker: Broker) -> None:
    client = popmq_broker.client()
    client.topics.create("orders")
    endpoint = popmq_broker.endpoint
    popmq_broker.restart()
    assert popmq_broker.endpoint == endpoint
    assert [topic.name for topic in client.topics.list()] == ["orders"]


async def test_the_clock_refuses_to_block_the_loop_of_a_client_that_would_renew(
    popmq_broker: Broker, popmq_clock: FakeClock
) -> None:
    async with popmq_broker.async_client() as client:
        await client.topics.create("orders")
        await client.groups.create("billing")
        await client.send("orders", b"x")
        consumer = client.consume("orders", "billing")
        async with await consumer.__anext__():
            with pytest.raises(RuntimeError, match="to_thread"):
                popmq_clock.advance(3_600_000)


@pytest.mark.slow
def test_a_users_test_gets_the_fixtures_by_installing_popmq(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_sends(popmq_broker, popmq_clock):
            client = popmq_broker.client()
            client.topics.create("orders")
            assert client.send("orders", "hello").offset == 0
        """
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=pytester.path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "1 passed" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("use", ["popmq.testing.FakeClock()", "popmq.testing.broker().__enter__()"])
def test_the_fixtures_without_the_server_extra_say_what_to_install(use: str, tmp_path: Path) -> None:
    code = f"import sys; sys.modules['lmdb'] = sys.modules['popmq_server'] = None; import popmq.testing; {use}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert 'RuntimeError: popmq.testing needs the broker: pip install "popmq[server]"' in done.stderr
