"""What callers may give to the SDK, what it refuses before it sends, and what callers may do with what it returns."""

import asyncio
import copy
import dataclasses
import numbers
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import popmq
from popmq import errors
from popmq.duration import seconds_of
from popmq.testing import Broker, FakeClock
from tests.sdk.conftest import GROUP, TOPIC, Connect


def test_a_client_may_be_made_before_there_is_an_event_loop(popmq_broker: Broker) -> None:
    client = popmq.AsyncClient(popmq_broker.endpoint)

    async def use() -> list[str]:
        async with client:
            await client.topics.create(TOPIC)
            await client.groups.create(GROUP)
            await client.send(TOPIC, ["a", "b"])
            (left,) = await client.pop(TOPIC, GROUP, 1)
            async with left:
                pass
            found = [left.text()]
            async for delivery in client.consume(TOPIC, GROUP, until_idle=0):
                async with delivery:
                    found.append(delivery.text())
            return found

    assert asyncio.run(use()) == ["a", "b"]


async def test_a_delivery_becomes_a_dict_a_tuple_and_a_copy_without_its_guard(client: Any) -> None:
    await client.send(TOPIC, ["a", "b"])
    (popped,) = await client.pop(TOPIC, GROUP, 1)
    browsed = [each for queue in range(8) for each in (await client.messages.browse(TOPIC, queue=queue)).deliveries]
    async for consumed in client.consume(TOPIC, GROUP, until_idle=0):
        for delivery in (popped, consumed, *browsed):
            found = dataclasses.asdict(delivery)
            assert (found["body"], found["_guard"]) == (delivery.body, None)
            assert delivery.body in dataclasses.astuple(delivery)
            assert copy.deepcopy(delivery).handle == delivery.handle
        consumed.ack()
    await client.ack(popped)


class Whole:
    """A whole number of another library, as those of numpy are: registered, with __index__, and no int."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value

    def __int__(self) -> int:
        return self.value

    def __float__(self) -> float:
        return float(self.value)

    def __abs__(self) -> int:
        return abs(self.value)

    def __lt__(self, other: int) -> bool:
        return self.value < other

    def __le__(self, other: int) -> bool:
        return self.value <= other

    def __ge__(self, other: int) -> bool:
        return self.value >= other


numbers.Integral.register(Whole)


@pytest.mark.embedded("delays of years")
async def test_whole_numbers_of_other_libraries_are_durations_times_and_counts(client: Any) -> None:
    four: Any = Whole(4)
    assert seconds_of(four) == 4.0
    await client.topics.create("counted", type="DELAY", queues=four)
    assert (await client.send("counted", popmq.Message("x", deliver_at=four))).recall_handle == ""  # 1970 is over
    for latest in (datetime.max, datetime.max.replace(tzinfo=UTC)):
        assert (await client.send("counted", popmq.Message("x", deliver_at=latest))).recall_handle


@pytest.mark.promise("ack")
async def test_a_pickled_delivery_is_the_same_and_its_handle_settles_it(client: Any) -> None:
    await client.send(TOPIC, popmq.Message("x", key="k", properties={"a": "b"}))
    (delivery,) = await client.pop(TOPIC, GROUP)
    copied = pickle.loads(pickle.dumps(delivery))
    fields = [field.name for field in dataclasses.fields(delivery) if field.name != "_guard"]
    assert [getattr(copied, name) for name in fields] == [getattr(delivery, name) for name in fields]
    assert copy.copy(delivery) is delivery
    with pytest.raises(RuntimeError, match=r"client\.ack"):
        copied.ack()
    await client.ack(copied)
    with pytest.raises(errors.HandleLapsed):
        await client.ack(delivery)


@pytest.mark.slow
async def test_a_word_for_on_error_that_does_not_exist_is_refused(client: Any) -> None:
    for consume in (client.consume, client.pull_consume):
        with pytest.raises(errors.InvalidField, match=r"'ignore' is neither 'log' nor 'raise'"):
            consume(TOPIC, GROUP, on_error="ignore")


@pytest.mark.parametrize("given", [90, 90.0, "90s", "90", "1m30s", "1.5m", timedelta(seconds=90)])
def test_a_duration_is_seconds_a_timedelta_or_a_text(given: Any) -> None:
    assert seconds_of(given) == 90.0


@pytest.mark.parametrize(
    "given",
    [
        "",
        "soon",
        "90x",
        "-1s",
        "1h 30m",
        None,
        True,
        float("nan"),
        10**16,
        "9" * 400 + "d",
        ("9" * 308 + "d") * 2,
        [90],
    ],
)
def test_a_malformed_duration_is_refused_with_the_forms_to_write(given: Any) -> None:
    with pytest.raises(errors.InvalidField, match="is not a duration") as refused:
        seconds_of(given, "wait")
    assert refused.value.field == "wait"
    assert '"90s"' in refused.value.action


@pytest.mark.slow
async def test_durations_are_taken_wherever_the_client_takes_one(client: Any, popmq_clock: FakeClock) -> None:
    await client.groups.create("brief", invisible="90s", backoff=["1s", timedelta(minutes=1)])
    made = await client.groups.get("brief")
    assert (made.invisible, list(made.backoff)) == (90.0, [1.0, 60.0])
    await client.send(TOPIC, "x")
    (delivery,) = await client.pop(TOPIC, "brief", wait=timedelta(0), invisible="2m")
    assert delivery.invisible_until_ms - delivery.stored_ms == 120_000
    changed = await client.extend(delivery, timedelta(minutes=5))
    assert changed.visible_ms - delivery.stored_ms == 300_000
    changed = await client.release(delivery, "10s")
    assert changed.visible_ms - delivery.stored_ms == 10_000


async def test_a_broker_that_does_not_answer_is_given_up_after_reach(connect: Connect) -> None:
    client = connect("127.0.0.1:1", retry=popmq.Retry(reach=0.0))
    with pytest.raises(errors.Unavailable):
        await client.topics.list()
    assert client.client_stats().retries == 0


@pytest.mark.promise("ack")
@pytest.mark.slow
async def test_a_second_settling_is_reported_as_one(client: Any, guard: Any, caplog: pytest.LogCaptureFixture) -> None:
    await client.send(TOPIC, "x")
    (delivery,) = await client.pop(TOPIC, GROUP)
    async with guard(delivery):
        delivery.ack()
        delivery.reject("no")
    await client.close()
    assert "came too late and changes nothing" in caplog.text
    assert "comes back" not in caplog.text


@pytest.mark.parametrize("gone", ["topics", "groups"])
async def test_an_outcome_of_a_deleted_topic_or_group_promises_no_delivery(
    client: Any, guard: Any, caplog: pytest.LogCaptureFixture, gone: str
) -> None:
    await client.send(TOPIC, "x")
    (delivery,) = await client.pop(TOPIC, GROUP)
    async with guard(delivery):
        await getattr(client, gone).delete({"topics": TOPIC, "groups": GROUP}[gone])
        delivery.ack()
    await client.close()
    said = {"topics": "or its topic was deleted or purged", "groups": "its message is gone: there is no group"}
    assert said[gone] in caplog.text
    assert "comes back" not in caplog.text
