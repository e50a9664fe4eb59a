"""Owners: a durable reader whose sealed tokens return the same set until their epoch is acked."""

from typing import Any

import pytest

import popmq
from popmq import errors
from tests.sdk.conftest import GROUP, TOPIC


@pytest.fixture
async def owner(client: Any) -> popmq.Attachment:
    await client.send(TOPIC, [popmq.Message(b"%d" % number, key=f"k{number}", tag="t") for number in range(5)])
    attachment: popmq.Attachment = await client.owners.attach(GROUP, "query", lease=60.0, topic=TOPIC)
    return attachment


def token(owner: popmq.Attachment, epoch: int = 1, **fields: Any) -> popmq.Token:
    return popmq.Token("query", owner.generation, epoch, **fields)


@pytest.mark.slow
async def test_a_sealed_set_is_returned_as_columns_and_repeated(client: Any, owner: popmq.Attachment) -> None:
    assert (owner.acked_epoch, owner.queues) == (0, 8)
    first = await client.owners.pop_sealed(TOPIC, GROUP, token(owner))
    assert (first.count, first.end, first.replay, len(first.columns)) == (5, True, False, 5)
    assert sorted(first.columns.body) == [b"%d" % number for number in range(5)]
    assert sorted(first.columns.key) == [f"k{number}" for number in range(5)]
    assert set(first.columns.tag) == {"t"}
    assert first.columns.attempt == [1] * 5
    again = await client.owners.pop_sealed(TOPIC, GROUP, token(owner))
    assert again.columns == first.columns
    assert again.replay


@pytest.mark.slow
async def test_ack_up_to_finishes_an_epoch_for_good(client: Any, owner: popmq.Attachment) -> None:
    await client.owners.pop_sealed(TOPIC, GROUP, token(owner))
    assert await client.owners.ack_up_to(GROUP, "query", owner.generation, 1) == popmq.Finished(5, 0)
    assert await client.owners.ack_up_to(GROUP, "query", owner.generation, 1) == popmq.Finished(0, 0)
    with pytest.raises(errors.EpochAlreadyAcked):
        await client.owners.pop_sealed(TOPIC, GROUP, token(owner))
    (stats,) = (await client.broker.stats(TOPIC, GROUP)).groups
    assert (stats.acked, stats.in_flight) == (5, 0)


@pytest.mark.slow
async def test_renewing_moves_the_lease_of_everything_held(
    client: Any, owner: popmq.Attachment, popmq_clock: Any
) -> None:
    await client.owners.pop_sealed(TOPIC, GROUP, token(owner))
    lease = await client.owners.renew(GROUP, "query", owner.generation, lease=120.0)
    assert (lease.tokens, lease.messages) == (1, 5)
    assert lease.lease_until_ms == popmq_clock.now_ms() + 120_000
    (shown,) = await client.owners.list(GROUP)
    assert (shown.owner, shown.generation, shown.messages) == ("query", owner.generation, 5)
