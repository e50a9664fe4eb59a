"""Lite topics: many small queues of one parent topic, each client with its own set."""

import time

from tests.interop.harness import Line
from tests.interop.scenarios import Outcome, scenario
from tests.interop.world import World, listened, receive, send, text, texts


@scenario(
    {"x": ["x1", "x2", "x3"], "y": ["y1", "y2", "y3"], "z": [], "later": ["z4"]}, needs=("lite_push",), wants=("lite",)
)
def lite_push(world: World) -> Outcome:
    """A listener hears the lite topics that it asked for, each in its order; one more can be asked for later."""
    driver, topic, group = world.start(), world.topic("LITE"), world.group()
    producer, consumer = world.producer(driver, topic), world.name("lite")
    where: Line = {**world.at, "group": group, "topic": topic, "lite_topics": ["x", "y"]}
    driver.call("lite_push", name=consumer, **where)
    for number in (1, 2, 3):
        for lite_topic in "xyz":
            send(driver, producer, topic, f"{lite_topic}{number}", lite_topic=lite_topic)
    listened(driver, consumer, 6, within=40)
    time.sleep(1)
    events = driver.events("listened", consumer)
    heard = {name: [text(e["message"]) for e in events if e["message"]["lite_topic"] == name] for name in "xyz"}
    driver.call("lite_subscribe", name=consumer, lite_topic="z")
    send(driver, producer, topic, "z4", lite_topic="z")
    # Whether what was sent before it was asked for comes too is the server's affair; z4 has to come, and last.
    driver.wait_for(lambda told: [e for e in told if e["event"] == "listened" and text(e["message"]) == "z4"], 30)
    later = [text(e["message"]) for e in driver.events("listened", consumer)[len(events) :]]
    return {**heard, "later": later[-1:]}


@scenario({"came": ["x1", "x2"]}, needs=("lite_simple",), wants=("lite",))
def lite_simple(world: World) -> Outcome:
    """The same by receives."""
    driver, topic, group = world.start(), world.topic("LITE"), world.group()
    producer, consumer = world.producer(driver, topic), world.name("lite")
    where: Line = {**world.at, "group": group, "topic": topic, "lite_topics": ["x"], "await_ms": 3_000}
    driver.call("lite_simple", name=consumer, **where)
    for body in ("x1", "x2", "y1"):
        send(driver, producer, topic, body, lite_topic=body[0])
    return {"came": texts(receive(driver, consumer, 2) + receive(driver, consumer, 1, within=1))}
