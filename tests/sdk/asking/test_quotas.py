"""Quotas of a topic: what is too much is refused with a hint, and tried again by it."""

import asyncio
from typing import Any

import pytest

import popmq
from popmq import errors
from popmq.testing import FakeClock
from tests.sdk.conftest import Connect, eventually, has_retried

SLOW = "slow"


@pytest.mark.slow
async def test_a_send_over_the_quota_is_tried_again_and_stored_once(
    connect: Connect, popmq_clock: FakeClock, advance: Any
) -> None:
    client = connect()
    await client.topics.create(SLOW, quota=popmq.Quota(send_messages_per_s=10))
    await client.send(SLOW, [b"x"] * 10)
    late = asyncio.ensure_future(client.send(SLOW, b"late"))
    await eventually(lambda: has_retried(client))
    await advance(1.0)
    assert (await late).offset >= 0
    assert (await client.broker.stats(SLOW)).topics[0].messages == 11


async def test_what_is_over_the_quota_says_for_how_long(connect: Connect) -> None:
    client = connect(retry=popmq.Retry(tries=1))
    await client.topics.create(SLOW, quota=popmq.Quota(send_messages_per_s=1))
    await client.send(SLOW, b"x")
    with pytest.raises(errors.RateLimited, match=r"\(retry after \d+ ms\)$"):
        await client.send(SLOW, b"late")
