"""What of a message arrives in a row, and what is not sent for it; message groups keep their order: both modes."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

import popmq
from tests.spark.conftest import TOPIC, Broker
from tests.spark.reading.microbatch import CRASH_POINTS, Crash, MicroBatches, ids

Make = Callable[..., MicroBatches]


@pytest.fixture(params=["lease", "offsets"])
def query(broker: Broker, request: pytest.FixtureRequest) -> Make:
    """A query in one of the modes, with a group."""
    return lambda **options: broker.query(mode=request.param, **options)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[popmq.Columns]:
    """The columns of every answer of the broker, to a Pop with a token and to a Pull."""
    seen: list[popmq.Columns] = []

    def spied(call: Callable[..., Any]) -> Callable[..., Any]:
        def spy(*given: Any, **named: Any) -> Any:
            answer = call(*given, **named)
            seen.append(answer.columns)
            return answer

        return spy

    for name in ("pop_sealed", "pull_columns"):
        monkeypatch.setattr(popmq.Client, name, spied(getattr(popmq.Client, name)))
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
    broker.client.create_topic("steps", queues=2, type="FIFO")
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
    broker.client.create_topic("steps", queues=2, type="FIFO")
    send_in_groups(broker, range(10))
    stream = broker.query(topic="steps", minPartitions=3)
    stream.trigger()
    tasks = [{row["body"][:1] for row in stream.read(part)} for part in stream.parts()]
    assert sum(map(len, tasks)) == len(set().union(*tasks)) == len(GROUPS)
