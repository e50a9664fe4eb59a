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


@pytest.mark.capability("filters")
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


async def test_a_filter_is_one_of_two(client: Any) -> None:
    with pytest.raises(errors.InvalidField, match="both"):
        await client.pop(TOPIC, GROUP, tag="eu", sql="TRUE")
