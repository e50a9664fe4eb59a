"""The worker: functions and coroutines that handle messages, what they take, and how their messages end."""

import asyncio
import gzip
import threading
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NewType, TypedDict

import pytest

import popmq
from popmq.outcome import BadPayload
from popmq.testing import Broker, FakeClock
from tests.sdk.workers.workers import sent_to


@dataclass
class Line:
    article: str
    count: int = 1


@dataclass
class Order:
    number: int
    lines: list[Line]
    placed: datetime | None = None


@dataclass
class Tree:
    value: int
    children: "list[Tree]" = field(default_factory=list)


Number = NewType("Number", int)


class Mail(TypedDict, total=False):
    to: str
    kind: Literal["plain", "html"]


def taken_by(broker: Broker, function: Any, *messages: Any, **options: Any) -> list[popmq.testing.Handled]:
    """What a worker of one handler did with messages."""
    worker = popmq.Worker()
    worker.on("orders", group="billing", **options)(function)
    sent_to(broker, worker, *messages)
    return broker.work(worker)


@pytest.fixture(scope="module")
def shared() -> Any:
    """One broker for what needs no clock and a topic of its own only."""
    with popmq.testing.broker() as broker:
        yield broker


@pytest.fixture
def fresh(shared: Broker) -> Any:
    """The shared broker without topics and groups."""
    yield shared
    client = shared.client()
    for topic in client.topics.list():
        client.topics.delete(topic.name)
    for group in client.groups.list():
        client.groups.delete(group.name)
    client.close()


def test_a_function_runs_in_a_thread_and_a_coroutine_in_the_loop(fresh: Broker) -> None:
    worker = popmq.Worker()
    where: list[tuple[str, bool]] = []

    @worker.on("orders", group="threads", concurrency=2)
    def blocks(body: str) -> None:
        where.append((body, threading.current_thread().name.startswith("popmq-")))

    @worker.on("orders", group="loop")
    async def awaits(body: str) -> None:
        await asyncio.sleep(0)
        where.append((body, asyncio.get_running_loop().is_running()))

    client = sent_to(fresh, worker, "one", "two")
    assert [each.outcome for each in fresh.work(worker)] == ["acked"] * 4
    assert sorted(where) == [("one", True), ("one", True), ("two", True), ("two", True)]
    assert [(row.acked, row.in_flight) for row in client.broker.stats("orders").groups] == [(2, 0), (2, 0)]
    assert blocks("by hand") is None


@pytest.mark.slow
def test_a_worker_handles_as_many_messages_at_a_time_as_its_concurrency(fresh: Broker) -> None:
    together = threading.Barrier(4, timeout=30)
    done = taken_by(fresh, lambda delivery: together.wait(), *"abcdefgh", concurrency=4)
    assert [each.outcome for each in done] == ["acked"] * 8


@pytest.mark.parametrize(
    ("kind", "body", "value"),
    [
        (bytes, b"\xff\x00", b"\xff\x00"),
        (str, "é", "é"),
        (int, b"5", 5),
        (float, b"5", 5.0),
        (dict[str, list[int]], b'{"a": [1]}', {"a": [1]}),
        (tuple[int, str], b'[1, "a"]', (1, "a")),
        (Literal["a", 1], b"1", 1),
        (
            Order,
            b'{"number": 1, "lines": [{"article": "pen"}], "placed": "2030-01-31T12:00:00+00:00", "new": 1}',
            Order(1, [Line("pen")], datetime(2030, 1, 31, 12, tzinfo=UTC)),
        ),
        (Mail, b'{"to": "a@b", "kind": "html"}', {"to": "a@b", "kind": "html"}),
        (Annotated[int, "an id"], b"5", 5),
        (Number, b"5", 5),
        (list[Annotated[Number, "an id"]], b"[5]", [5]),
        (Annotated[bytes, "raw"], b"5", b"5"),
        (Tree, b'{"value": 1, "children": [{"value": 2}]}', Tree(1, [Tree(2)])),
        (bytes, popmq.Message(gzip.compress(b"a") + gzip.compress(b"b"), encoding="GZIP"), b"ab"),
        (str, popmq.Message(zlib.compress(b"a"), encoding="ZLIB"), "a"),
        (int, popmq.Message(zlib.compress(b"5"), encoding="GZIP"), 5),
        (bytes, popmq.Message(b"as it is", encoding="ZSTD"), b"as it is"),
    ],
)
def test_the_annotation_says_what_a_handler_gets(fresh: Broker, kind: Any, body: Any, value: Any) -> None:
    def handler(payload: Any) -> Any:
        return payload

    handler.__annotations__["payload"] = kind
    (done,) = taken_by(fresh, handler, body)
    assert (done.outcome, done.result) == ("acked", value)


@pytest.mark.slow
def test_models_of_pydantic_and_structs_of_msgspec_are_made_by_their_libraries(fresh: Broker) -> None:
    pydantic, msgspec = pytest.importorskip("pydantic"), pytest.importorskip("msgspec")
    model = pydantic.create_model("Model", number=(int, pydantic.Field(ge=1)))
    struct = msgspec.defstruct("Struct", [("number", int)])
    for group, kind in (("pydantic", model), ("msgspec", struct)):
        worker = popmq.Worker()

        def handler(payload: Any) -> Any:
            return payload.number

        handler.__annotations__["payload"] = kind
        worker.on("orders", group=group)(handler)
        sent_to(fresh, worker)
        fresh.client().send("orders", ['{"number": 7}', '{"number": "seven"}'])
        handled = {each.delivery.body: (each.outcome, each.result) for each in fresh.work(worker)}
        assert handled == {b'{"number": 7}': ("acked", 7), b'{"number": "seven"}': ("rejected", None)}
        fresh.client().topics.delete("orders")


def test_a_handler_takes_the_delivery_beside_the_payload_or_alone(fresh: Broker) -> None:
    def both(delivery: popmq.Delivery, payload: dict[str, int], unit: str = "EUR") -> Any:
        return delivery.key, payload, unit

    (done,) = taken_by(fresh, both, popmq.Message(b'{"a": 1}', key="k"))
    assert done.result == ("k", {"a": 1}, "EUR")
    (done,) = taken_by(fresh, lambda delivery: delivery.key, popmq.Message("x", key="alone"), concurrency=1)
    assert done.result == "alone"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "the body is not JSON"),
        (b"[" * 200_000 + b"]" * 200_000, "the body is nested too deeply"),
        (popmq.Message(b"no gzip", encoding="GZIP"), "the body is not GZIP, as its encoding says"),
        (popmq.Message(gzip.compress(b"{}")[:-9], encoding="GZIP"), "it is cut short"),
        (popmq.Message(gzip.compress(bytes(33 << 20)), encoding="GZIP"), "larger than 32 MiB when it is unpacked"),
        (b'{"number": 1}', "the body has no field 'lines', which Order needs"),
        (b'{"number": true, "lines": []}', "the body.number is True, not int"),
        (b'{"number": 1, "lines": [{"article": "a"}, {"article": 5}]}', r"the body.lines\[1\].article is 5, not str"),
        (b'{"number": 1, "lines": [], "placed": "noon"}', "the body.placed is 'noon', not"),
    ],
)
def test_a_body_of_another_type_is_a_dead_letter_that_says_where_it_is_wrong(
    fresh: Broker, body: Any, text: str
) -> None:
    def handler(order: Order) -> None:
        raise AssertionError("not called")

    (done,) = taken_by(fresh, handler, body)
    with pytest.raises(BadPayload, match=text):
        raise done.error or AssertionError
    (dead,) = fresh.client().messages.browse("%DLQ%billing").deliveries
    assert dead.dead_letter is not None
    assert dead.dead_letter.reason == str(done.error)


def test_a_coroutine_that_a_function_returns_is_awaited(fresh: Broker) -> None:
    """As a decorator without `async` around a coroutine function does."""
    ran = list[bytes]()

    async def work(delivery: popmq.Delivery) -> None:
        await asyncio.sleep(0)
        ran.append(delivery.body)

    (done,) = taken_by(fresh, lambda delivery: work(delivery), "a")
    assert (ran, done.outcome) == ([b"a"], "acked")


def test_a_generator_that_a_function_returns_fails_its_message(fresh: Broker) -> None:
    (done,) = taken_by(fresh, lambda delivery: (each for each in "ab"), "a")
    assert done.outcome == "released"


@pytest.mark.slow
def test_an_error_releases_with_the_backoff_of_the_group_until_its_attempts_are_used_up(
    popmq_broker: Broker, popmq_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    worker = popmq.Worker()

    @worker.on("orders", group="billing")
    def fails(delivery: popmq.Delivery) -> None:
        raise ValueError("no such customer")

    client = popmq_broker.client()
    client.groups.create("billing", max_attempts=2, backoff=[60.0])
    sent_to(popmq_broker, worker, "x")
    assert [each.outcome for each in popmq_broker.work(worker)] == ["released"]
    assert popmq_broker.work(worker) == []
    popmq_clock.advance(60_000)
    assert [each.delivery.attempt for each in popmq_broker.work(worker)] == [2]
    (dead,) = client.messages.browse("%DLQ%billing").deliveries
    assert dead.dead_letter is not None
    assert dead.dead_letter.reason.startswith("ValueError: no such customer")
    assert "the handler of message" in caplog.text


@pytest.mark.slow
def test_reject_and_retry_later_say_how_a_message_ends(popmq_broker: Broker, popmq_clock: FakeClock) -> None:
    worker = popmq.Worker()

    @worker.on("orders", group="billing")
    async def decides(delivery: popmq.Delivery) -> None:
        if delivery.body == b"bad":
            raise popmq.Reject("no such customer")
        if delivery.attempt == 1:
            raise popmq.RetryLater("10m", reason="closed")

    client = sent_to(popmq_broker, worker, "bad", "later")
    assert sorted(each.outcome for each in popmq_broker.work(worker)) == ["rejected", "released"]
    popmq_clock.advance(599_000)
    assert popmq_broker.work(worker) == []
    popmq_clock.advance(1_000)
    assert [each.outcome for each in popmq_broker.work(worker)] == ["acked"]
    (dead,) = client.messages.browse("%DLQ%billing").deliveries
    assert dead.dead_letter is not None
    assert dead.dead_letter.reason == "no such customer"


def test_a_handler_that_snoozes_has_its_message_again_with_no_attempt_counted(
    popmq_broker: Broker, popmq_clock: FakeClock
) -> None:
    worker = popmq.Worker()
    attempts: list[int] = []

    @worker.on("orders", group="billing")
    def waits(delivery: popmq.Delivery) -> None:
        attempts.append(delivery.attempt)
        if len(attempts) < 3:
            raise popmq.Snooze("10m", reason="closed")

    sent_to(popmq_broker, worker, "a")
    assert [each.outcome for each in popmq_broker.work(worker)] == ["released"]
    popmq_clock.advance(599_000)
    assert popmq_broker.work(worker) == []
    for outcome in ("released", "acked"):
        popmq_clock.advance(600_000)
        assert [each.outcome for each in popmq_broker.work(worker)] == [outcome]
    assert attempts == [1, 1, 1]


class Panic(BaseException):
    """As native libraries raise it."""


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), asyncio.CancelledError(), StopIteration(), KeyboardInterrupt(), GeneratorExit(), Panic("bad")],
    ids=repr,
)
def test_an_error_that_is_meant_for_others_fails_the_message_and_not_the_worker(
    fresh: Broker, error: BaseException
) -> None:
    def fails(delivery: popmq.Delivery) -> None:
        if delivery.body == b"bad":
            raise error

    async def fails_in_the_loop(delivery: popmq.Delivery) -> None:
        fails(delivery)

    done = taken_by(fresh, fails, "bad", "good", concurrency=1)
    assert {each.delivery.body: each.outcome for each in done} == {b"bad": "released", b"good": "acked"}
    if not isinstance(error, GeneratorExit):  # that ends a coroutine
        done = taken_by(fresh, fails_in_the_loop, "bad", "good", concurrency=1)
        assert {each.delivery.body: each.outcome for each in done} == {b"bad": "released", b"good": "acked"}


class Notes(popmq.Middleware):
    """Writes down what it sees."""

    def __init__(self, name: str, notes: list[str], fails_in: str = "") -> None:
        self.name, self.notes, self.fails_in = name, notes, fails_in

    def note(self, what: str) -> None:
        self.notes.append(f"{self.name} {what}")
        if what == self.fails_in:
            raise RuntimeError(f"{self.name} {what}")

    async def started(self, worker: popmq.Worker) -> None:
        self.note("started")

    def before(self, delivery: popmq.Delivery) -> None:
        self.note("before")

    async def after(self, delivery: popmq.Delivery, result: Any) -> None:
        self.note(f"after {result}")

    def failed(self, delivery: popmq.Delivery, error: Exception) -> None:
        self.note(f"failed {type(error).__name__}")

    def stopped(self, worker: popmq.Worker) -> None:
        self.note("stopped")


def test_middleware_surrounds_a_handler_the_first_one_outermost(fresh: Broker) -> None:
    notes: list[str] = []
    worker = popmq.Worker(middleware=[Notes("a", notes)])
    worker.use(Notes("b", notes))
    worker.on("orders", group="billing")(lambda delivery: 1)
    sent_to(fresh, worker, "x")
    fresh.work(worker)
    assert notes == [
        *("a started", "b started", "a before", "b before"),
        *("b after 1", "a after 1", "b stopped", "a stopped"),
    ]


@pytest.mark.slow
def test_a_middleware_that_raises_before_fails_the_message_and_after_changes_nothing(fresh: Broker) -> None:
    notes: list[str] = []
    inner = Notes("b", notes, fails_in="before")
    worker = popmq.Worker(middleware=[Notes("a", notes, fails_in="failed RuntimeError"), inner])
    worker.on("orders", group="billing")(lambda delivery: 1)
    sent_to(fresh, worker, "x")
    assert [each.outcome for each in fresh.work(worker)] == ["released"]
    assert notes[2:6] == ["a before", "b before", "b failed RuntimeError", "a failed RuntimeError"]
    inner.fails_in = "after 1"
    fresh.client().send("orders", "y")
    assert [each.outcome for each in fresh.work(worker)] == ["acked"]


@pytest.mark.slow
def test_a_context_that_middleware_sets_reaches_a_handler_in_its_thread(fresh: Broker) -> None:
    from contextvars import ContextVar

    tenant: ContextVar[str] = ContextVar("tenant")

    class Tenant(popmq.Middleware):
        def before(self, delivery: popmq.Delivery) -> None:
            tenant.set(delivery.key)

    worker = popmq.Worker(middleware=[Tenant()])
    worker.on("orders", group="billing")(lambda delivery: (delivery.body.decode(), tenant.get()))
    sent_to(fresh, worker, popmq.Message("a", key="a"), popmq.Message("b", key="b"))
    assert sorted(each.result for each in fresh.work(worker)) == [("a", "a"), ("b", "b")]


def test_a_test_runs_what_handlers_send_to_each_other(fresh: Broker) -> None:
    worker, client = popmq.Worker(), fresh.client()

    @worker.on("mails", group="mailer")
    def mails(text: str) -> str:
        return text

    @worker.on("orders", group="billing")
    def bills(text: str) -> None:
        client.send("mails", f"bill of {text}")

    @worker.on("orders", group="settling")
    def settles(delivery: popmq.Delivery) -> None:
        delivery.reject("by hand")

    sent_to(fresh, worker, "one")
    handled = fresh.work(worker)
    assert sorted((each.delivery.group, each.outcome, each.result) for each in handled) == [
        ("billing", "acked", None),
        ("mailer", "acked", "bill of one"),
        ("settling", "settled", None),
    ]


@pytest.mark.slow
def test_fast_handlers_pop_many_messages_at_a_time(fresh: Broker) -> None:
    worker = popmq.Worker()

    @worker.on("orders", group="billing", concurrency=2)
    async def fast(delivery: popmq.Delivery) -> None: ...

    client = sent_to(fresh, worker, *map(str, range(2000)))
    assert len(fresh.work(worker)) == 2000
    assert client.broker.stats("orders").groups[0].acked == 2000


def test_one_function_handles_messages_of_two_topics_at_once(popmq_broker: Broker) -> None:
    """Each waits for the other, so both run when the first of them ends."""
    worker, both = popmq.Worker(), threading.Barrier(2, timeout=60)
    for topic in ("orders", "mails"):

        @worker.on(topic, group="billing")
        def book(delivery: popmq.Delivery) -> None:
            both.wait()

    client = sent_to(popmq_broker, worker, *"abc")
    client.send("mails", [*"abc"])
    assert [each.outcome for each in popmq_broker.work(worker)] == ["acked"] * 6
