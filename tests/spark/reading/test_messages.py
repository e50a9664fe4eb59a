"""What of a message arrives in a row, and what is not sent for it; message groups keep their order: both modes."""

import dataclasses
import gzip
import zlib
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import popmq
from popmq_spark import columns as columns_of_spark
from tests.spark.conftest import TOPIC, Broker
from tests.spark.reading.microbatch import CRASH_POINTS, Crash, MicroBatches, ids

Make = Callable[..., MicroBatches]


@pytest.fixture(params=["lease", "offsets"])
def query(broker: Broker, request: pytest.FixtureRequest) -> Make:
    """A query in one of the modes, with a group."""
    return lambda **options: broker.query(mode=request.param, **options)


@pytest.fixture
def answers(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[popmq.Columns]:
    """The columns of every answer of the broker, to a Pop with a token and to a Pull."""
    seen: list[popmq.Columns] = []

    def spied(call: Callable[..., Any]) -> Callable[..., Any]:
        def spy(*given: Any, **named: Any) -> Any:
            answer = call(*given, **named)
            seen.append(answer.columns)
            return answer

        return spy

    for kind, name in ((type(broker.client.owners), "pop_sealed"), (popmq.Client, "pull_columns")):
        monkeypatch.setattr(kind, name, spied(getattr(kind, name)))
    return seen


def test_the_broker_sends_only_the_columns_of_the_users_schema(
    broker: Broker, query: Make, answers: list[popmq.Columns]
) -> None:
    broker.client.send(TOPIC, [popmq.Message(b"long", tag="a", key="k")])
    for columns, sent in (((), (1, 1, 1)), (("message_id", "tag"), (0, 1, 0))):
        answers.clear()
        stream = query(group=f"spark-{len(columns)}")
        stream.columns = columns
        stream.run()
        assert len(stream.rows()) == 1
        assert set(stream.rows()[0]) >= {"message_id", "tag"}
        assert {(len(each.body), len(each.tag), len(each.key)) for each in answers if len(each)} == {sent}


BOMB = gzip.compress(bytes(40 << 20))


def test_bodies_are_unpacked_and_what_cannot_be_keeps_its_encoding(broker: Broker, query: Make) -> None:
    broker.client.send(
        TOPIC,
        [
            popmq.Message(gzip.compress(b"packed"), encoding="GZIP"),
            popmq.Message(zlib.compress(b"deflated"), encoding="ZLIB"),
            popmq.Message(b"plain"),
            popmq.Message(b"damaged", encoding="GZIP"),
            popmq.Message(b"another", encoding="LZ4"),
            popmq.Message(BOMB, encoding="GZIP"),
        ],
    )
    stream = query()
    stream.run()
    assert {(row["body"], row["encoding"]) for row in stream.rows()} == {
        *((b"packed", None), (b"deflated", None), (b"plain", None)),
        *((b"damaged", "GZIP"), (b"another", "LZ4"), (BOMB, "GZIP")),
    }


def test_bodies_stay_as_they_were_sent_with_decode_false(broker: Broker, query: Make) -> None:
    packed = gzip.compress(b"packed")
    broker.client.send(TOPIC, popmq.Message(packed, encoding="GZIP"))
    stream = query(decode="false")
    stream.run()
    assert [(row["body"], row["encoding"]) for row in stream.rows()] == [(packed, "GZIP")]


def test_unpacked_bodies_come_in_batches_that_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_of_spark, "UNPACKED_BYTES", 1000)
    schema = pa.schema([("body", pa.binary()), ("queue_offset", pa.int64())])
    body = gzip.compress(bytes(400))
    answer = popmq.Columns(*([],) * 11, (), (), (), ())
    answer = dataclasses.replace(
        answer, body=[body] * 7, key=["a", "b"] * 3 + ["a"], offset=[*range(7)], encoding=["GZIP"] * 7
    )
    found = [*columns_of_spark.to_batches(answer, "orders", None, schema)]
    assert [len(batch) for batch in found] == [3, 3, 1]
    assert {each for batch in found for each in batch["body"].to_pylist()} == {bytes(400)}
    chosen = columns_of_spark.to_batches(answer, "orders", None, schema, {"b"})
    assert [batch["queue_offset"].to_pylist() for batch in chosen] == [[1], [3, 5], []]


def test_all_keys_the_message_group_and_the_priority_have_columns(broker: Broker, query: Make) -> None:
    broker.client.topics.create("urgent", type="PRIORITY")
    broker.client.topics.create("ledger", type="FIFO")
    broker.client.send("urgent", popmq.Message(b"x", key="a", more_keys=("b",), priority=3))
    broker.client.send("ledger", popmq.Message(b"y", message_group="g"))
    stream = query(topic="", topics="urgent, ledger", includeKeys="true")
    del stream.options["topic"]
    stream.run()
    found = {row["body"]: (row["keys"], row["priority"], row["message_group"]) for row in stream.rows()}
    assert found == {b"x": (["a", "b"], 3, None), b"y": ([], 0, "g")}


def test_properties_are_rows_of_a_map_when_they_are_asked_for(
    broker: Broker, query: Make, answers: list[popmq.Columns]
) -> None:
    broker.client.send(TOPIC, [popmq.Message(b"x", properties={"colour": "red", "size": "9"}), popmq.Message(b"y")])
    stream = query(includeProperties="true")
    stream.run()
    found = {row["body"]: dict(row["properties"]) for row in stream.rows()}
    assert found == {b"x": {"colour": "red", "size": "9"}, b"y": {}}
    answers.clear()
    without = query(group="other")
    without.run()
    assert "properties" not in without.rows()[0]
    assert not any(any(each.properties) for each in answers)


# ── Message groups ───────────────────────────────────────────────────────────────────────────────────────────────────

GROUPS = "abcde"


def send_in_groups(broker: Broker, rounds: range) -> list[str]:
    """One message of each message group in each round; the body is group and round."""
    messages = [popmq.Message(f"{group}{n:03}", message_group=group) for n in rounds for group in GROUPS]
    return [receipt.message_id for receipt in broker.client.send("steps", messages)]


def in_order(stream: MicroBatches) -> bool:
    """Whether the sink has each message group in the order of its rounds, though tasks run side by side."""
    rounds = defaultdict(list)
    for row in stream.rows():
        rounds[row["body"][:1]].append(row["body"][1:])
    return len(rounds) == len(GROUPS) and all(found == sorted(found) for found in rounds.values())


@pytest.mark.parametrize("crash", CRASH_POINTS)
def test_message_groups_of_a_fifo_topic_arrive_in_order_in_tasks_and_repeats(broker: Broker, crash: str) -> None:
    broker.client.topics.create("steps", queues=2, type="FIFO")
    sent = send_in_groups(broker, range(10))
    stream = broker.query(topic="steps", maxRowsPerTrigger=20, minPartitions=3)
    stream.trigger()
    with pytest.raises(Crash):
        stream.trigger(crash=crash)
    broker.let_leases_run_out()
    sent += send_in_groups(broker, range(10, 14))
    stream.start()
    stream.run()
    assert sorted(ids(stream.rows())) == sorted(sent)
    assert in_order(stream)
    assert all(stream.repeated[batch] == stream.sink[batch] for batch in stream.repeated)


def test_tasks_of_one_batch_never_share_a_message_group(broker: Broker) -> None:
    broker.client.topics.create("steps", queues=2, type="FIFO")
    send_in_groups(broker, range(10))
    stream = broker.query(topic="steps", minPartitions=3)
    stream.trigger()
    tasks = [{row["body"][:1] for row in stream.read(part)} for part in stream.parts()]
    assert sum(map(len, tasks)) == len(set().union(*tasks)) == len(GROUPS)
