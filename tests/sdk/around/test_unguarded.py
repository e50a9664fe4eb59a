"""A loop whose body settles nothing: its deliveries come again when their leases end, which a log line says at once."""

import pytest

from popmq.testing import Broker, FakeClock


@pytest.fixture
def filled(popmq_broker: Broker) -> Broker:
    client = popmq_broker.client()
    client.topics.create("orders", queues=1)
    client.groups.create("billing")
    client.send("orders", ["one", "two", "three"])
    return popmq_broker


def test_a_loop_without_a_guard_warns_before_its_next_pop(filled: Broker, caplog: pytest.LogCaptureFixture) -> None:
    for delivery in filled.client().consume("orders", "billing", until_idle=0.05):
        delivery.text()
    assert "deliveries of group billing were dropped without ack, release or reject (2)" in caplog.text


def test_a_loop_with_a_guard_does_not_warn(filled: Broker, caplog: pytest.LogCaptureFixture) -> None:
    for delivery in filled.client().consume("orders", "billing", until_idle=0.05):
        with delivery:
            delivery.text()
    assert "dropped without" not in caplog.text


def test_deliveries_that_handlers_hold_are_not_warned_of(filled: Broker, caplog: pytest.LogCaptureFixture) -> None:
    held = list(filled.client().consume("orders", "billing", until_idle=0.05))
    assert len(held) == 3
    assert "dropped without" not in caplog.text


def test_what_a_handler_holds_for_more_than_twelve_hours_comes_again_and_the_log_says_so(
    popmq_clock: FakeClock, filled: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    consumer, other = filled.client().consume("orders", "billing", max_messages=1), filled.client()
    held = next(consumer)
    popmq_clock.advance("12h")
    assert held.message_id not in {each.message_id for each in other.pop("orders", "billing")}
    popmq_clock.advance("2m")
    assert held.message_id in {each.message_id for each in other.pop("orders", "billing")}
    assert "deliveries of group billing were held for 12 h and are renewed no longer (1)" in caplog.text
    consumer.close()
