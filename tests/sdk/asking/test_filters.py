"""Filters: what a group reads of a topic, by tag or by SQL92."""

from typing import Any

import pytest

import popmq
from popmq import errors
from tests.sdk.conftest import GROUP, TOPIC


@pytest.fixture
async def client(client: Any) -> Any:
    """Four orders of two regions are there."""
    for region, amount in [("eu", 50), ("us", 150), ("eu", 200), ("ch", 300)]:
        properties = {"region": region, "amount": str(amount)}
        await client.send(TOPIC, popmq.Message(f"{region} {amount}", tag=region, properties=properties))
    return client


def texts(deliveries: Any) -> list[str]:
    return sorted(delivery.text() for delivery in deliveries)


async def test_a_pop_filters_by_tags(client: Any) -> None:
    assert texts(await client.pop(TOPIC, GROUP, tag="eu || ch")) == ["ch 300", "eu 200", "eu 50"]


async def test_a_pop_filters_by_sql(client: Any) -> None:
    assert texts(await client.pop(TOPIC, GROUP, sql="region = 'eu' AND amount > 100")) == ["eu 200"]


@pytest.mark.slow
async def test_a_consumer_gets_only_messages_of_its_filter(client: Any, guard: Any) -> None:
    seen = []
    async for delivery in client.consume(TOPIC, GROUP, tag="us", until_idle=0.01):
        async with guard(delivery):
            seen.append(delivery.text())
    assert seen == ["us 150"]
    (stats,) = (await client.broker.stats(TOPIC, GROUP)).groups
    assert (stats.acked, stats.filtered) == (1, 3)


async def test_the_first_pop_fixes_the_filter_until_it_is_set_again(client: Any, guard: Any) -> None:
    await client.pop(TOPIC, GROUP, tag="us")
    with pytest.raises(errors.FilterConflict):
        await client.pop(TOPIC, GROUP, tag="eu")
    consumer = client.consume(TOPIC, GROUP, sql="TRUE")
    with pytest.raises(errors.FilterConflict):
        await consumer.__anext__()
    read = await client.groups.set_filter(TOPIC, GROUP, sql="amount > 100")
    assert read == popmq.Subscription(TOPIC, sql="amount > 100")
    await client.send(TOPIC, popmq.Message("new", properties={"amount": "101"}))
    await client.send(TOPIC, popmq.Message("small", properties={"amount": "1"}))
    assert texts(await client.pop(TOPIC, GROUP)) == ["new"]
    assert await client.groups.subscriptions(GROUP) == [read]


@pytest.mark.slow
async def test_no_filter_is_everything_again(client: Any) -> None:
    await client.groups.set_filter(TOPIC, GROUP, tag="eu")
    assert (await client.groups.set_filter(TOPIC, GROUP)).tag in ("", "*")
    assert len(await client.pop(TOPIC, GROUP)) == 4


async def test_a_filter_that_cannot_be_read_says_where(client: Any) -> None:
    for call in (
        client.pop(TOPIC, GROUP, sql="region = 'eu' AND AND"),
        client.groups.set_filter(TOPIC, GROUP, sql="region = 'eu' AND AND"),
    ):
        with pytest.raises(errors.InvalidFilter, match="column 19") as refused:
            await call
        assert refused.value.code == "FILTER_INVALID"


async def test_a_filter_is_one_of_two(client: Any) -> None:
    with pytest.raises(errors.InvalidField, match="both"):
        await client.pop(TOPIC, GROUP, tag="eu", sql="TRUE")
