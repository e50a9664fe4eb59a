"""What stops one handler of a worker alone, what a worker creates, and how a delivery unpacks its body."""

import asyncio
import gzip
from pkgutil import resolve_name
from typing import Any, TypeVar

import pytest
from typing_extensions import TypeAliasType

import popmq
from popmq.outcome import BadPayload
from popmq.testing import Broker
from tests.sdk.workers.workers import sent_to


def test_a_delivery_unpacks_its_body_as_its_encoding_says() -> None:
    packed = gzip.compress(b'{"a": "b"}')
    delivery = popmq.Delivery(packed, encoding="GZIP")
    assert (delivery.json(), delivery.text(), delivery.body) == ({"a": "b"}, '{"a": "b"}', packed)
    for wrong in (popmq.Delivery(b"x", encoding="ZLIB"), popmq.Delivery(b"[" * 100_000)):
        with pytest.raises(ValueError, match="the body is"):
            wrong.json()


@pytest.mark.capability("filters")
def test_a_changed_filter_stops_only_the_handler_that_names_the_old_one(
    popmq_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    worker = popmq.Worker()
    worker.on("orders", group="eu", tag="eu", concurrency=2)(lambda delivery: None)
    worker.on("orders", group="all")(lambda delivery: None)
    client = sent_to(popmq_broker, worker, "one")
    client.pop("orders", "eu", tag="us")  # fixes the filter of the group
    assert [each.delivery.group for each in popmq_broker.work(worker)] == ["all"]
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert all("handles no more messages of orders, the other handlers go on" in text for text in told)
    assert told


@pytest.mark.capability("filters")
def test_a_worker_with_no_other_handler_ends_by_a_changed_filter(popmq_broker: Broker) -> None:
    worker = popmq.Worker()
    worker.on("orders", group="eu", tag="eu")(lambda delivery: None)
    sent_to(popmq_broker, worker).pop("orders", "eu", tag="us")
    with pytest.raises(popmq.errors.FilterConflict):
        popmq_broker.work(worker)


def test_a_worker_creates_missing_topics_and_groups_on_request(popmq_broker: Broker) -> None:
    worker = popmq.Worker(popmq_broker.endpoint)
    client = popmq_broker.client()
    client.topics.create("orders", queues=3)
    worker.on("orders", group="billing")(lambda delivery: worker.stop())
    worker.on("parcels", group="billing")(lambda delivery: None)
    client.send("orders", "x")
    assert asyncio.run(worker.serve(declare=True))
    assert sorted((topic.name, topic.queues) for topic in client.topics.list())[0] == ("orders", 3)
    assert "parcels" in [topic.name for topic in client.topics.list()]
    assert [group.name for group in client.groups.list()] == ["billing"]


converter: Any = resolve_name("popmq._worker.converting:converter")  # a handler's payload, without a broker
T = TypeVar("T")
Pair = TypeAliasType("Pair", tuple[T, T], type_params=(T,))
# As `type Tree = dict[str, Tree]` of Python 3.12, which 3.11 cannot parse.
Tree = TypeAliasType("Tree", dict[str, Any])
object.__setattr__(Tree, "__value__", dict[str, Tree])


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (TypeAliasType("Text", str), b"x", b"\xff"),
        (TypeAliasType("Numbers", list[int]), b"[1, 2]", b'["1"]'),
        (list[TypeAliasType("Number", int)], b"[1, 2]", b'["1"]'),  # type: ignore[misc]
        (Pair[int], b"[1, 2]", b"[1, 2, 3]"),
    ],
)
def test_an_alias_is_read_as_what_it_stands_for(kind: Any, good: bytes, bad: bytes) -> None:
    read = converter(kind)
    read(good)
    with pytest.raises(BadPayload):
        read(bad)


def test_an_alias_may_name_itself() -> None:
    read = converter(Tree)
    assert read(b'{"a": {"b": {}}}') == {"a": {"b": {}}}
    with pytest.raises(BadPayload, match=r"the body\.a\.b is 1"):
        read(b'{"a": {"b": 1}}')


def bad(delivery: popmq.Delivery) -> None:
    raise ValueError("bad")


async def bad_too(delivery: popmq.Delivery) -> None:
    raise ValueError("bad")


@pytest.mark.promise("read_your_writes")
@pytest.mark.parametrize("function", [bad, bad_too])
def test_the_reason_and_the_log_of_a_failure_begin_with_the_frame_of_the_handler(
    popmq_broker: Broker, caplog: pytest.LogCaptureFixture, function: Any
) -> None:
    worker = popmq.Worker()
    worker.on("orders", group="billing")(function)
    client = popmq_broker.client()
    client.groups.create("billing", max_attempts=1)
    sent_to(popmq_broker, worker, "x")
    popmq_broker.work(worker)
    (dead,) = client.messages.browse("%DLQ%billing").deliveries
    assert dead.dead_letter is not None
    assert dead.dead_letter.reason.splitlines()[1].endswith(f"in {function.__name__}")
    (logged,) = [record for record in caplog.records if record.name == "popmq.consumer"]
    assert logged.exc_info is not None
    assert logged.exc_info[2] is not None
    assert logged.exc_info[2].tb_frame.f_code is function.__code__
