"""Closing a client: what still waits then ends, and what comes later is refused."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from popmq import errors
from tests.sdk.conftest import GROUP, TOPIC, Connect


async def test_leaving_a_guard_of_a_closed_client_raises_client_closed(client: Any, guard: Any) -> None:
    await client.send(TOPIC, "x")
    (delivery,) = await client.pop(TOPIC, GROUP)
    await client.close()
    with pytest.raises(errors.ClientClosed):
        async with guard(delivery):
            pass


async def test_an_outcome_that_comes_after_closing_is_logged_as_not_sent(
    client: Any, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    await client.send(TOPIC, "x")
    reader = connect()
    delivery = await reader.consume(TOPIC, GROUP).__anext__()
    await reader.close()
    caplog.clear()
    with caplog.at_level(logging.WARNING, "popmq.consumer"):
        delivery.ack()
    assert f"1 outcomes of group {GROUP} are not sent, since the client is closed" in caplog.text
    assert (await client.leases(GROUP, TOPIC)).total == 1
