"""The probes of a worker: what is ready, what its processes report, and the HTTP port that tells it."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import popmq
from popmq.testing import Broker
from popmq_cli.shared import health
from popmq_cli.shared.health import Answer, HealthPort, Reported, Reports
from tests.sdk.workers.workers import sent_to


class Moments:
    """A clock in seconds that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


async def changed(worker: popmq.Worker, *before: str) -> str:
    """What a worker says once it says none of these."""
    while (said := worker.unready()) in before:  # noqa: ASYNC110 - a worker has no event to wait for
        await asyncio.sleep(0.001)
    return said


# ── Worker.unready ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_worker_is_ready_while_its_handlers_are_at_work(popmq_broker: Broker) -> None:
    worker, seen = popmq.Worker(popmq_broker.endpoint), list[str]()

    @worker.on("orders", group="billing")
    def bill(delivery: popmq.Delivery) -> None:
        seen.append(worker.unready())
        worker.stop()
        seen.append(worker.unready())

    sent_to(popmq_broker, worker, "one")
    before = worker.unready()
    assert asyncio.run(worker.serve())
    assert (before, seen) == ("not started", ["", "draining"])


@pytest.mark.capability("filters")
def test_a_worker_with_a_stopped_handler_is_not_ready(popmq_broker: Broker) -> None:
    worker, seen = popmq.Worker(popmq_broker.endpoint), list[str]()
    worker.on("orders", group="eu", tag="eu")(lambda delivery: None)

    @worker.on("orders", group="all")
    async def handle(delivery: popmq.Delivery) -> None:
        seen.append(await changed(worker, ""))
        worker.stop()

    sent_to(popmq_broker, worker, "one").pop("orders", "eu", tag="us")  # fixes the filter of the group
    asyncio.run(worker.serve())
    assert [text.partition(": ")[2] for text in seen] == ["the group eu has another filter in orders"]


async def test_a_worker_without_a_broker_is_not_ready(popmq_broker: Broker) -> None:
    worker = popmq.Worker(popmq_broker.endpoint)
    worker.on("orders", group="billing")(lambda delivery: None)
    await asyncio.to_thread(popmq_broker.declare, worker)
    await asyncio.to_thread(popmq_broker.stop)
    serving = asyncio.create_task(worker.serve())
    assert await changed(worker, "not started", "not connected yet") == "the broker does not answer"
    worker.stop()
    await serving


# ── Reports of processes ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_process_is_healthy_until_its_reports_stop() -> None:
    clock = Moments()
    one, other = Reported(clock), Reported(clock)
    assert health.healthy([one, other]) == (True, "ok")
    assert health.ready([one, other]) == (False, "process 1 of 2: starting; process 2 of 2: starting")
    one.take(b"\n")
    other.take(b"not connected yet\n\n")
    assert health.ready([one, other]) == health.healthy([one, other]) == (True, "ok")
    clock.now += health.SILENT_S + 1
    other.take(b"\n")
    stuck = (False, "process 1 of 2: its event loop has not answered for 5 s")
    assert health.ready([one, other]) == health.healthy([one, other]) == stuck


def test_a_process_that_is_started_again_is_healthy_and_not_ready() -> None:
    clock = Moments()
    one = Reported(clock)
    one.take(b"\n")
    one.begin("it ended with exit code 9 and is started again")
    clock.now += 60
    assert health.healthy([one]) == (True, "ok")
    assert health.ready([one]) == (False, "process 1: it ended with exit code 9 and is started again")


def test_a_report_may_come_in_pieces() -> None:
    one = Reported()
    one.take(b"dr")
    assert one.unready() == "starting"
    one.take(b"aining\n")
    assert one.unready() == "draining"


async def test_a_pipe_that_nobody_reads_blocks_no_report() -> None:
    end, pipe = os.pipe()
    reports = Reports(pipe)
    worker = popmq.Worker()
    await reports.started(worker)
    await asyncio.sleep(0)
    assert os.read(end, 100) == b"not started\n"
    os.close(end)
    await reports.started(worker)
    await asyncio.sleep(0)
    assert not reports._reporting.done()
    await reports.stopped(worker)
    os.close(pipe)


# ── The port ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def port(host: str = "127.0.0.1") -> AsyncIterator[int]:
    opened = health.listening(host, 0)
    probes = {"/healthz": lambda: Answer(True, "ok"), "/readyz": lambda: Answer(False, "draining")}
    server = await HealthPort(probes).serve(opened)
    yield opened.getsockname()[1]
    server.close()


async def asked(number: int, request: bytes, host: str = "127.0.0.1") -> tuple[str, str]:
    """The status and the body."""
    reader, writer = await asyncio.open_connection(host, number)
    writer.write(request)
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    length = "".join(line for line in head.splitlines() if line.startswith("Content-Length"))
    return head.partition(" ")[2][:3], body.strip() or length


@pytest.mark.parametrize(
    ("request_line", "status", "said"),
    [
        ("GET /healthz HTTP/1.1", "200", "ok"),
        ("GET /readyz?verbose HTTP/1.0", "503", "draining"),
        ("HEAD /readyz HTTP/1.1", "503", "Content-Length: 9"),
        ("GET / HTTP/1.1", "404", "there are /healthz, /readyz"),
        ("POST /healthz HTTP/1.1", "405", "GET or HEAD"),
        ("\x00", "405", "GET or HEAD"),
    ],
)
async def test_each_request_has_an_answer(request_line: str, status: str, said: str) -> None:
    async with port() as number:
        assert await asked(number, f"{request_line}\r\nHost: x\r\n\r\n".encode()) == (status, said)


async def test_both_families_are_answered() -> None:
    async with port("::") as number:
        for host in ("127.0.0.1", "::1"):
            assert (await asked(number, b"GET /healthz HTTP/1.1\r\n\r\n", host))[0] == "200"


async def test_an_address_may_stand_in_brackets() -> None:
    async with port("[::1]") as number:
        assert (await asked(number, b"GET /healthz HTTP/1.1\r\n\r\n", "::1"))[0] == "200"


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\n"], ids=["nothing", "half"])
async def test_probes_are_answered_beside_silent_connections(sent: bytes) -> None:
    async with port() as number:
        held = [(await asyncio.open_connection("127.0.0.1", number))[1] for _ in range(3 * health.CONNECTIONS_MAX)]
        for one in held:
            one.write(sent)
        for _ in range(3):
            assert (await asked(number, b"GET /healthz HTTP/1.1\r\n\r\n"))[0] == "200"
        for one in held:
            one.close()


async def test_a_request_that_does_not_arrive_or_has_no_end_loses_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with port() as number:
        assert await asked(number, b"GET /healthz HTTP/1.1\r\n" + b"x" * 10_000) == ("", "")
        monkeypatch.setattr(health, "REQUEST_S", 0.01)
        assert await asked(number, b"GET /healthz") == ("", "")
