"""Libraries for tests stop `time.monotonic`: background work goes on by the real clock."""

from __future__ import annotations

import time

import pytest

import popmq
from popmq.testing import Broker
from tests.sdk.conftest import GROUP, TOPIC


def test_a_consumer_gets_idle_while_the_clocks_of_the_program_stand_still(
    monkeypatch: pytest.MonkeyPatch, popmq_broker: Broker, sync_client: popmq.Client
) -> None:
    sync_client.send(TOPIC, "x")
    stopped = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: stopped)
    handled = 0
    for delivery in sync_client.consume(TOPIC, GROUP, until_idle=0.1):
        with delivery:
            handled += 1
    assert handled == 1
