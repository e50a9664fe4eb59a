"""Quotas of a topic: what is too much is refused with a hint, and tried again by it."""

import asyncio
from typing import Any

import pytest

import popmq
from popmq import errors
from popmq.testing import FakeClock
from tests.sdk.conftest import GROUP, Connect, eventually, has_retried

SLOW = "slow"


@pytest.fixture
async def client(connect: Connect, popmq_clock: FakeClock) -> Any:
    """A client with a topic that takes ten messages a second, on a broker whose time stands still."""
    client = connect()
    quota = popmq.Quota(send_messages_per_s=10, message_bytes=1000, pop_messages_per_s=5)
    await client.topics.create(SLOW, quota=quota)
    await client.groups.create(GROUP, in_flight_max=3)
    return client


async def test_a_send_over_the_quota_is_refused_with_a_hint_when_it_is_not_tried_again(
    connect: Connect, client: Any
) -> None:
    await client.send(SLOW, [b"x"] * 10)
    once = connect(retry=popmq.Retry(tries=1))
    with pytest.raises(errors.RateLimited) as refused:
        await once.send(SLOW, b"x")
    assert refused.value.retryable
    assert 0 < refused.value.retry_after <= 1.0
    assert (await client.broker.stats(SLOW)).topics[0].messages == 10


@pytest.mark.slow
async def test_a_send_over_the_quota_is_tried_again_and_stored_once(client: Any, advance: Any) -> None:
    await client.send(SLOW, [b"x"] * 10)
    late = asyncio.ensure_future(client.send(SLOW, b"late"))
    await eventually(lambda: has_retried(client))
    await advance(1.0)
    assert (await late).offset >= 0
    assert (await client.broker.stats(SLOW)).topics[0].messages == 11


@pytest.mark.slow
async def test_a_pop_over_the_quota_and_one_over_the_in_flight_limit_are_distinguished(
    connect: Connect, client: Any, advance: Any
) -> None:
    once = connect(retry=popmq.Retry(tries=1))
    receipts = await client.send(SLOW, [b"x"] * 10)
    assert len({receipt.queue for receipt in receipts}) == 1
    held = await client.pop(SLOW, GROUP, max_messages=3)
    with pytest.raises(errors.InFlightLimit):
        await once.pop(SLOW, GROUP)
    await client.ack(held)
    await client.ack(await client.pop(SLOW, GROUP, max_messages=2))
    with pytest.raises(errors.RateLimited):
        await once.pop(SLOW, GROUP)
    await advance(1.0)
    assert len(await client.pop(SLOW, GROUP)) == 3
