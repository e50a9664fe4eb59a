"""Programs and event loops that end while consumers are open: they end at once, and tell the broker what they can."""

import asyncio
import subprocess
import sys
import textwrap
import time

import pytest

import popmq
from popmq.testing import Broker
from tests.sdk.conftest import GROUP, TOPIC
from tests.sdk.programs import started

#: Far longer than a program needs to start, and to end within its second.
ENDS_S = 60.0

GENERATOR = """
    def texts():
        for delivery in client.{consume}("orders", "billing"):
            with delivery:
                yield delivery.text()
    left = texts()
    print(next(left), flush=True)
"""
OWNER = """
    client.close()
    def texts():
        with popmq.Client({endpoint!r}) as own:
            for delivery in own.consume("orders", "billing"):
                with delivery:
                    yield delivery.text()
    left = texts()
    print(next(left), flush=True)
"""
AT_THE_END = """
    class Store:
        def __del__(self):
            {step}
    store = Store()
    print("ready", flush=True)
"""


def ends(broker: Broker, body: str, **names: str) -> tuple[int, str, str]:
    """Runs a program to its end: exit code, standard output and error."""
    head = "import popmq, time\nclient = popmq.Client({endpoint!r})\n"
    text = (head + textwrap.dedent(body)).format(endpoint=broker.endpoint, **names)
    program = started(
        subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    )
    out, err = program.communicate(timeout=ENDS_S)
    return program.returncode, out, err


@pytest.mark.promise("redelivery")
@pytest.mark.process
def test_a_program_ends_with_a_generator_around_a_consumer_and_its_messages_are_visible_at_once(
    popmq_broker: Broker, sync_client: popmq.Client
) -> None:
    sync_client.send(TOPIC, ["1", "2", "3"])
    assert ends(popmq_broker, GENERATOR, consume="consume") == (0, "1\n", "")
    assert sorted((each.text(), each.attempt) for each in sync_client.pop(TOPIC, GROUP)) == [
        ("1", 1),
        ("2", 1),
        ("3", 1),
    ]
    assert sync_client.broker.stats(TOPIC, GROUP).groups[0].sessions == 0


@pytest.mark.promise("redelivery")
@pytest.mark.process
def test_a_program_ends_with_a_generator_that_owns_its_client(popmq_broker: Broker, sync_client: popmq.Client) -> None:
    sync_client.send(TOPIC, "1")
    assert ends(popmq_broker, OWNER) == (0, "1\n", "")
    assert [each.attempt for each in sync_client.pop(TOPIC, GROUP)] == [1]


@pytest.mark.process
def test_a_program_ends_with_a_generator_around_a_pull_consumer(
    popmq_broker: Broker, sync_client: popmq.Client
) -> None:
    sync_client.groups.set_consume_mode(TOPIC, GROUP, "PULL")
    sync_client.send(TOPIC, "1")
    assert ends(popmq_broker, GENERATOR, consume="pull_consume") == (0, "1\n", "")


@pytest.mark.process
@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("client.close()", ""),
        ("client.send('orders', 'last')", "the program has ended"),
        ("client.pop('orders', 'billing')", "the program has ended"),
        ("client.sessions.heartbeat('billing', ['orders'])", "the program has ended"),
    ],
)
def test_a_client_that_is_used_when_the_interpreter_ends_returns_or_says_so(
    popmq_broker: Broker, sync_client: popmq.Client, step: str, said: str
) -> None:
    sync_client.send(TOPIC, "1")
    code, out, err = ends(popmq_broker, "    client.send('orders', 'x')" + AT_THE_END, step=step)
    assert (code, out) == (0, "ready\n")
    assert said in err if said else not err


@pytest.mark.process
def test_a_program_ends_within_seconds_when_its_broker_is_away(popmq_broker: Broker, sync_client: popmq.Client) -> None:
    sync_client.send(TOPIC, ["1", "2", "3"])
    wait = """
    import pathlib, sys
    while pathlib.Path(sys.argv[0] or ".") and not client._wire.away():
        try:
            client.sessions.heartbeat('billing', ['orders'])
        except popmq.PopMQError:
            pass
    print(time.time(), flush=True)
    """
    text = textwrap.dedent(GENERATOR).format(consume="consume") + textwrap.dedent(wait)
    head = f"import popmq, time\nclient = popmq.Client({popmq_broker.endpoint!r}, retry=popmq.Retry(tries=1))\n"
    program = started(subprocess.Popen([sys.executable, "-c", head + text], stdout=subprocess.PIPE, text=True))
    assert program.stdout is not None
    program.stdout.readline()
    popmq_broker.stop()
    out, _ = program.communicate(timeout=ENDS_S)
    took = time.time() - float(out)
    popmq_broker.start()
    assert took < 5.0  # without its bound, five seconds for the outcomes alone


@pytest.mark.process
def test_a_delivery_that_outlives_its_client_without_a_guard_is_said_to_be_unsettled(
    popmq_broker: Broker, sync_client: popmq.Client
) -> None:
    sync_client.send(TOPIC, "1")
    code, _, err = ends(
        popmq_broker,
        """
        with client:
            for delivery in client.consume("orders", "billing", until_idle=0.1):
                print(delivery.text())
        """,
    )
    assert code == 0
    assert err.startswith("deliveries of group billing had no ack, release or reject when the client was closed (1)")


LOOP = """
    import asyncio
    async def main():
        client = popmq.AsyncClient({endpoint!r})
        async for delivery in client.{consume}("orders", "billing"):
            async with delivery:
                {step}
            break
        return time.monotonic()
    left = asyncio.run(main())
    print(time.monotonic() - left)
"""
#: An event loop's end waited five seconds for outcomes that nobody sent.
AT_ONCE_S = 4.0


@pytest.mark.promise("statistics")
@pytest.mark.process
def test_an_event_loop_ends_at_once_after_a_loop_that_was_left_by_break(
    popmq_broker: Broker, sync_client: popmq.Client
) -> None:
    sync_client.send(TOPIC, ["1", "2"])
    code, out, err = ends(popmq_broker, LOOP, consume="consume", step="pass")
    assert (code, err) == (0, "")
    assert float(out) < AT_ONCE_S
    stats = sync_client.broker.stats(TOPIC, GROUP).groups[0]
    assert (stats.acked, stats.in_flight) == (1, 0)


@pytest.mark.promise("read_your_writes")
@pytest.mark.process
def test_a_pull_consumer_that_is_cancelled_with_its_loop_loses_no_failed_message(
    popmq_broker: Broker, sync_client: popmq.Client
) -> None:
    sync_client.groups.set_consume_mode(TOPIC, GROUP, "PULL")
    sync_client.send(TOPIC, "1")
    code, out, _ = ends(popmq_broker, LOOP, consume="pull_consume", step="raise ValueError")
    assert code == 0
    assert float(out) < AT_ONCE_S
    assert sync_client.messages.browse(f"%RETRY%{GROUP}+{TOPIC}").max_offset == 1


@pytest.mark.promise("redelivery")
def test_an_event_loop_ends_at_once_when_its_tasks_are_cancelled_in_the_middle_of_a_handler(
    sync_client: popmq.Client,
) -> None:
    sync_client.send(TOPIC, "1")

    async def main() -> float:
        async def work() -> None:
            async with popmq.AsyncClient(sync_client.endpoint) as client:
                async for delivery in client.consume(TOPIC, GROUP):
                    async with delivery:
                        begun.set()
                        await asyncio.Event().wait()

        begun = asyncio.Event()
        task = asyncio.create_task(work())
        await begun.wait()
        assert not task.done()
        return time.monotonic()

    assert time.monotonic() - asyncio.run(main()) < AT_ONCE_S
    assert [each.attempt for each in sync_client.pop(TOPIC, GROUP)] == [1]
