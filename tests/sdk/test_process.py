"""A client among processes, threads and signals."""

import os
import signal
import threading
from typing import Any

import pytest

import popmq
from popmq import errors
from popmq.testing import Broker
from tests.sdk.conftest import GROUP, TOPIC
from tests.sdk.programs import STOPPED_BY_A_SIGNAL, line, python

pytestmark = pytest.mark.process


FORK = """
    import os, popmq
    client = popmq.Client({endpoint!r})
    client.send("orders", [b"of the parent", b"popped before"])
    deliveries = iter(client.consume("orders", "billing", until_idle=0.01, confirm=True))
    with next(deliveries):
        pass
    if os.fork() == 0:
        try:
            client.send("orders", b"of the child")
        except popmq.errors.ClientClosed as error:
            print(error, flush=True)
        with popmq.Client({endpoint!r}) as own:
            own.send("orders", b"of the child's own")
        client.close()
        raise SystemExit  # with a consumer in hand that is the parent's
    os.wait()
    for delivery in deliveries:
        with delivery:
            print(delivery.text(), flush=True)
    client.close()
"""

FORK_BESIDE_A_CALL = """
    import os, popmq, threading
    client = popmq.Client({endpoint!r})
    waiting = threading.Thread(target=client.pop, args=("orders", "billing"), kwargs=dict(wait=60.0))
    waiting.start()
    while not (groups := client.broker.stats("orders", "billing").groups) or not groups[0].waiters:
        pass
    if os.fork() == 0:
        try:
            print(len(popmq.Client({endpoint!r}).topics.list()), "topic", flush=True)
        except popmq.errors.ClientClosed as error:
            print(error, flush=True)
        os._exit(0)
    os.wait()
    client.send("orders", "ends the waiting")
    waiting.join()
    client.close()
"""

FORK_WITH_LOCKS = """
    import os, popmq, signal, threading
    client = popmq.Client({endpoint!r})
    client.send("orders", b"x")
    consumer = client.consume("orders", "billing")
    delivery = next(consumer)
    threading.Thread(target=next, args=(consumer, None), daemon=True).start()
    while not client.broker.stats("orders", "billing").groups[0].waiters:
        pass
    parts = client._parts
    client._replies._made = True
    for part in (client._gatherer, parts.leases, parts.settler, client._checker):
        part._lock.acquire()
    for lock in (client._wire._counting, client._replies._changing):
        lock.acquire()
    if os.fork() == 0:
        signal.alarm(30)
        calls = [lambda: client.send("orders", b"y"), lambda: next(consumer), lambda: delivery.__enter__()]
        calls += [delivery.ack, lambda: delivery.__exit__(None, None, None), client.topics.list]
        calls += [lambda: client.request("orders", b"y"), lambda: client.transactions.on_check("orders", print)]
        for call in calls:
            try:
                call()
            except popmq.errors.ClientClosed:
                print("refused", flush=True)
        os._exit(0)
    os.wait()
    os._exit(0)
"""

CLOSED_BY_A_SIGNAL = """
    import signal, popmq
    client = popmq.Client({endpoint!r})
    consumer = client.consume("orders", "billing")
    signal.signal(signal.SIGTERM, lambda *_: {closed}.close())
    for delivery in consumer:
        with delivery:
            print(delivery.text(), flush=True)
    try:
        print(len(client.topics.list()), "topic", flush=True)
    except popmq.errors.ClientClosed:
        print("closed", flush=True)
"""

HANDLER_THAT_WAITS = """
    import signal, popmq
    with popmq.Client({endpoint!r}) as client:
        for delivery in client.consume("orders", "billing"):
            with delivery:
                print(delivery.text(), flush=True)
                signal.pause()
"""


@pytest.mark.promise("statistics")
@pytest.mark.parametrize("transport", ["python", "grpcio"])
def test_a_client_used_after_a_fork_says_so_and_a_new_one_works(
    sync_client: popmq.Client, popmq_broker: Broker, transport: str
) -> None:
    out, err = python(FORK, popmq_broker, transport).communicate(timeout=60)
    refused, *seen_by_the_parent = out.splitlines()
    assert "before the fork" in refused
    assert "make a new client in each process" in refused
    assert sorted(seen_by_the_parent) == ["of the child's own", "popped before"]
    assert "Traceback" not in err
    (stats,) = sync_client.broker.stats(TOPIC, GROUP).groups
    assert (stats.acked, stats.in_flight, stats.sessions) == (3, 0, 0)


def test_a_client_used_after_a_fork_waits_for_no_lock_of_its_parent(
    sync_client: popmq.Client, popmq_broker: Broker
) -> None:
    out, _ = python(FORK_WITH_LOCKS, popmq_broker).communicate(timeout=60)
    assert out.split() == ["refused"] * 8


LAUNCHES = """
    import popmq, signal, subprocess
    client = popmq.Client({endpoint!r})
    client.send("orders", b"connected")
    ended = set()
    for _ in range(150):
        with subprocess.Popen(
            ["true"],
            stdin=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        ) as program:
            program.wait()
        ended.add(program.returncode)
    client.send("orders", b"still connected")
    print(*ended)
"""


@pytest.mark.parametrize("transport", ["python", "grpcio"])
def test_programs_are_started_beside_a_client_as_pyspark_starts_its_java(
    sync_client: popmq.Client, popmq_broker: Broker, transport: str
) -> None:
    """With `preexec_fn` Popen forks the process that uses gRPC: three launches in a hundred used to abort, so
    that one of these would in ninety-nine runs of a hundred."""
    out, _ = python(LAUNCHES, popmq_broker, transport).communicate(timeout=100)
    assert out == "0\n"


def test_the_environment_of_programs_that_are_started_is_the_users_own(
    sync_client: popmq.Client, popmq_broker: Broker
) -> None:
    code = "import os, popmq; popmq.Client({endpoint!r}).topics.list(); print(os.environ.get('GRPC_POLL_STRATEGY'))"
    out, _ = python(code, popmq_broker).communicate(timeout=60)
    assert out == "None\n"


def test_a_fork_beside_a_call_harms_neither_parent_nor_child(sync_client: popmq.Client, popmq_broker: Broker) -> None:
    out, err = python(FORK_BESIDE_A_CALL, popmq_broker, "python").communicate(timeout=60)
    assert (out, err) == ("1 topic\n", "")


def test_a_fork_beside_a_grpcio_call_is_reported_and_does_not_hang(
    sync_client: popmq.Client, popmq_broker: Broker
) -> None:
    out, err = python(FORK_BESIDE_A_CALL, popmq_broker, "grpcio").communicate(timeout=60)
    assert "forked while a call of its parent was under way" in out
    assert "spawn or forkserver" in out
    assert "Traceback" not in err


@pytest.mark.promise("statistics")
def test_a_consumer_stopped_by_a_signal_leaves_nothing_leased(sync_client: popmq.Client, popmq_broker: Broker) -> None:
    sync_client.send(TOPIC, ["one"])
    worker = python(STOPPED_BY_A_SIGNAL.replace("{loop}", "consume"), popmq_broker)
    assert line(worker) == "one"
    worker.send_signal(signal.SIGTERM)
    out, err = worker.communicate(timeout=60)
    assert (out, err, worker.returncode) == ("stopped\n", "", 0)
    (stats,) = sync_client.broker.stats(TOPIC, GROUP).groups
    assert (stats.acked, stats.in_flight, stats.sessions) == (1, 0, 0)


@pytest.mark.promise("statistics")
@pytest.mark.parametrize(("closed", "then"), [("consumer", "1 topic"), ("client", "closed")])
def test_a_signal_handler_that_closes_ends_the_loop_that_it_interrupts(
    sync_client: popmq.Client, popmq_broker: Broker, closed: str, then: str
) -> None:
    sync_client.send(TOPIC, ["one"])
    worker = python(CLOSED_BY_A_SIGNAL.replace("{closed}", closed), popmq_broker)
    assert line(worker) == "one"
    while not sync_client.broker.stats(TOPIC, GROUP).groups[0].waiters:
        pass
    worker.send_signal(signal.SIGTERM)
    out, err = worker.communicate(timeout=60)
    assert (out, err, worker.returncode) == (f"{then}\n", "", 0)
    (stats,) = sync_client.broker.stats(TOPIC, GROUP).groups
    assert (stats.acked, stats.in_flight, stats.sessions) == (1, 0, 0)


@pytest.mark.promise("statistics")
def test_ctrl_c_in_a_handler_gives_its_message_back(sync_client: popmq.Client, popmq_broker: Broker) -> None:
    sync_client.send(TOPIC, ["one"])
    worker = python(HANDLER_THAT_WAITS, popmq_broker)
    assert line(worker) == "one"
    worker.send_signal(signal.SIGINT)
    _, err = worker.communicate(timeout=60)
    assert "KeyboardInterrupt" in err
    (stats,) = sync_client.broker.stats(TOPIC, GROUP).groups
    assert (stats.acked, stats.in_flight, stats.retry, stats.sessions) == (0, 0, 1, 0)


@pytest.mark.promise("statistics")
def test_a_loop_left_by_break_leaves_nothing_leased(sync_client: popmq.Client) -> None:
    sync_client.send(TOPIC, [b"x"] * 10)
    for number, delivery in enumerate(sync_client.consume(TOPIC, GROUP)):
        with delivery:
            if number == 3:
                break
    (stats,) = sync_client.broker.stats(TOPIC, GROUP).groups
    assert (stats.acked, stats.in_flight) == (4, 0)


async def test_a_delivery_that_its_program_dropped_is_not_renewed(client: Any, advance: Any) -> None:
    await client.send(TOPIC, b"forgotten")
    async with client.consume(TOPIC, GROUP, invisible=60.0) as consumer:
        await consumer.__anext__()
        await advance(60.0)
        (again,) = await client.pop(TOPIC, GROUP)
        assert again.attempt == 2


@pytest.mark.promise("statistics")
@pytest.mark.parametrize("kind", ["consume", "pull_consume"])
def test_threads_may_share_a_consumer(sync_client: popmq.Client, kind: str) -> None:
    sync_client.send(TOPIC, [b"%d" % number for number in range(200)])
    seen: list[int] = []
    consumer = getattr(sync_client, kind)(TOPIC, GROUP, until_idle=0.2)

    def work() -> None:
        while (delivery := next(consumer, None)) is not None:
            with delivery:
                seen.append(int(delivery.body))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(200))
    assert sync_client.broker.stats(TOPIC, GROUP).groups[0].acked == 200


def test_a_closed_client_says_that_it_is_closed(popmq_broker: Broker) -> None:
    client = popmq.Client(popmq_broker.endpoint)
    client.topics.list()
    client.close()
    with pytest.raises(errors.ClientClosed, match="closed"):
        client.topics.list()
    client.close()


def test_closing_ends_a_call_that_is_under_way(sync_client: popmq.Client, popmq_broker: Broker) -> None:
    other = popmq.Client(popmq_broker.endpoint)
    outcome: list[BaseException] = []

    def wait() -> None:
        try:
            other.pop(TOPIC, GROUP, wait=60.0)
        except errors.PopMQError as error:
            outcome.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not (groups := sync_client.broker.stats(TOPIC, GROUP).groups) or not groups[0].waiters:
        pass
    other.close()
    waiting.join()
    assert [type(error) for error in outcome] == [errors.ClientClosed]


@pytest.mark.promise("statistics")
async def test_an_async_delivery_may_be_guarded_by_with_where_nothing_is_awaited(
    sync_client: popmq.Client, popmq_broker: Broker
) -> None:
    sync_client.send(TOPIC, ["x", "y"])
    async with popmq.AsyncClient(popmq_broker.endpoint) as client, client.consume(TOPIC, GROUP) as consumer:
        with await consumer.__anext__():
            pass
        (popped,) = await client.pop(TOPIC, GROUP)
        with pytest.raises(RuntimeError, match="async with"), popped:
            pass
    assert sync_client.broker.stats(TOPIC, GROUP).groups[0].acked == 2


def test_a_delivery_made_for_a_unit_test_needs_no_broker() -> None:
    delivery = popmq.Delivery(b'{"n": 1}', key="k")
    with delivery:
        assert (delivery.json(), delivery.key) == ({"n": 1}, "k")
    with pytest.raises(ValueError, match="through"), delivery:
        raise ValueError("through")


def test_the_client_id_names_host_and_process(popmq_broker: Broker) -> None:
    assert str(os.getpid()) in popmq_broker.client().client_id
    assert popmq_broker.client(client_id="me").client_id == "me"
