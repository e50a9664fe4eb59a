"""Invisible time: it passes, it is changed, and what lost its lease cannot be acked."""

import time

from tests.interop.harness import Driver, Line
from tests.interop.scenarios import Outcome, scenario
from tests.interop.world import World, nothing, receive, refusal, send


def _take(driver: Driver, consumer: str, invisible_ms: int, within: float = 20) -> tuple[Line, float]:
    """One message without an ack, and when it came."""
    [message] = receive(driver, consumer, 1, within, invisible_ms, ack=False)
    return message, time.monotonic()


@scenario(
    {"back": "when its lease ended", "attempts": [1, 2], "same": True, "late_ack": 40013, "ack": "none"},
    but={"go": {"late_ack": "none"}},
)
def lease_passes(world: World) -> Outcome:
    """A message that nobody acks comes back; the first handle is worthless then.

    The Go client keeps what the server says of an ack to itself.
    """
    driver, topic, group = world.start(), world.topic(), world.group()
    producer = world.producer(driver, topic)
    consumer = world.simple(driver, topic, group)
    send(driver, producer, topic, "slow")
    lease = world.target.least_invisible_ms
    first, first_at = _take(driver, consumer, lease)
    second, second_at = _take(driver, consumer, 60_000, within=lease / 1000 + 20)
    took = second_at - first_at
    on_time = lease / 1000 - 0.5 < took < lease / 1000 + 3
    return {
        "back": "when its lease ended" if on_time else f"after {took:.1f} s of {lease / 1000:.0f}",
        "attempts": [first.get("attempt"), second.get("attempt")],
        "same": first["message_id"] == second["message_id"],
        "late_ack": refusal(lambda: driver.call("ack", name=consumer, held=first["held"])),
        "ack": refusal(lambda: driver.call("ack", name=consumer, held=second["held"])),
    }


@scenario({"prolonged": "held", "shortened": True, "attempt": 2, "ack": "none", "left": "nothing"}, needs=("change",))
def lease_changed(world: World) -> Outcome:
    """Prolonged it does not come when the first lease would have ended; shortened it comes soon; then it is acked."""
    driver, topic, group = world.start(), world.topic(), world.group()
    producer = world.producer(driver, topic)
    consumer = world.simple(driver, topic, group)
    send(driver, producer, topic, "slow")
    lease = world.target.least_invisible_ms
    first, _ = _take(driver, consumer, lease)
    driver.call("change", name=consumer, held=first["held"], invisible_ms=60_000)
    polls = max(2, lease // 5_000)
    held = nothing(driver, consumer, polls)
    driver.call("change", name=consumer, held=first["held"], invisible_ms=1_000)
    changed_at = time.monotonic()
    second, second_at = _take(driver, consumer, 60_000)
    return {
        "prolonged": "held" if held else "came back",
        "shortened": second_at - changed_at < 6,
        "attempt": second.get("attempt"),
        "ack": refusal(lambda: driver.call("ack", name=consumer, held=second["held"])),
        "left": "nothing" if nothing(driver, consumer) else "something",
    }


@scenario({"ack_after_change": "none", "ack_again": "none", "left": "nothing"}, needs=("change",))
def acked_twice(world: World) -> Outcome:
    """After a change the message can be acked, and an ack that is repeated does no harm."""
    driver, topic, group = world.start(), world.topic(), world.group()
    producer = world.producer(driver, topic)
    consumer = world.simple(driver, topic, group)
    send(driver, producer, topic, "once")
    message, _ = _take(driver, consumer, 20_000)
    driver.call("change", name=consumer, held=message["held"], invisible_ms=30_000)
    return {
        "ack_after_change": refusal(lambda: driver.call("ack", name=consumer, held=message["held"])),
        "ack_again": refusal(lambda: driver.call("ack", name=consumer, held=message["held"])),
        "left": "nothing" if nothing(driver, consumer) else "something",
    }
