"""What was sent is what is received."""

import hashlib
import time

from tests.interop.scenarios import Outcome, scenario
from tests.interop.world import World, encoded, nothing, receive, send, texts

BODY = bytes(range(256)) + "Grüße, 世界".encode()
PROPERTIES = {"price": "12.5", "region": "eu", "Umlaut": "ä ö ü 世界", "long": "x" * 2_000}


@scenario(
    {
        "body": True,
        "tag": "paid",
        "keys": ["k1", "k2"],
        "properties": PROPERTIES,
        "id": "the sender's",
        "topic": True,
        "group": None,
        "attempt": 1,
        "born": "when it was sent",
        "born_host": True,
        "left": "nothing",
    }
)
def send_and_receive(world: World) -> Outcome:
    """Every part of a normal message; an acked message does not come again."""
    driver, topic, group = world.start(), world.topic(), world.group()
    producer = world.producer(driver, topic)
    consumer = world.simple(driver, topic, group)
    sent_ms = time.time() * 1000
    message = {"topic": topic, "body": encoded(BODY), "tag": "paid", "keys": ["k2", "k1"], "properties": PROPERTIES}
    receipt = driver.call("send", name=producer, message=message)
    [came] = receive(driver, consumer)
    return {
        "body": came["body"] == encoded(BODY),
        "tag": came.get("tag"),
        "keys": came["keys"],
        "properties": came["properties"],
        "id": "the sender's" if came["message_id"] == receipt["message_id"] else came["message_id"],
        "topic": came["topic"] == topic,
        "group": came.get("group"),
        "attempt": came.get("attempt"),
        "born": "when it was sent" if abs(came["born_at_ms"] - sent_ms) < 30_000 else came["born_at_ms"] - sent_ms,
        "born_host": bool(came["born_host"]),
        "left": "nothing" if nothing(driver, consumer) else "something",
    }


@scenario({"bodies": True})
def large_body(world: World) -> Outcome:
    """A body a little under the 4 MiB that all clients allow, of which not all can receive as much again."""
    driver, topic, group = world.start(), world.topic(), world.group()
    producer = world.producer(driver, topic)
    consumer = world.simple(driver, topic, group)
    body = hashlib.shake_256(b"large").digest((4 << 20) - (64 << 10))
    driver.call("send", name=producer, message={"topic": topic, "body": encoded(body)})
    return {"bodies": [m["body"] for m in receive(driver, consumer)] == [encoded(body)]}


@scenario({"came": ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"], "ids": True})
def many(world: World) -> Outcome:
    """Ten messages, each acked by itself, each delivered once."""
    driver, topic, group = world.start(), world.topic(), world.group()
    producer = world.producer(driver, topic)
    consumer = world.simple(driver, topic, group)
    sent = {send(driver, producer, topic, str(n))["message_id"] for n in range(10)}
    came = receive(driver, consumer, 10) + receive(driver, consumer, 1, within=1)
    return {"came": sorted(texts(came)), "ids": {m["message_id"] for m in came} == sent}


@scenario({"waited": True, "messages": 0})
def empty(world: World) -> Outcome:
    """A receive of an empty topic waits, and then answers that there is nothing."""
    driver, topic, group = world.start(), world.topic(), world.group()
    consumer = world.simple(driver, topic, group)
    began = time.monotonic()
    answer = driver.call("receive", name=consumer, max=4, invisible_ms=10_000)
    return {"waited": time.monotonic() - began > 1, "messages": len(answer["messages"])}


@scenario({"woken_within_s": True})
def woken(world: World) -> Outcome:
    """A receive that waits is answered when a message comes."""
    driver, topic, group = world.start(), world.topic(), world.group()
    producer = world.producer(driver, topic)
    consumer = world.simple(driver, topic, group, await_ms=10_000)
    waiting = driver.begin("receive", name=consumer, max=4, invisible_ms=10_000)
    time.sleep(2)  # then it waits at the server: no client tells when
    sent = time.monotonic()
    send(driver, producer, topic, "hello")
    messages = waiting.result(20)["messages"]
    return {"woken_within_s": len(messages) == 1 and time.monotonic() - sent < 5}


@scenario({"bodies": ["in one", "in two"], "apart": True}, needs=("namespace",))
def namespaces(world: World) -> Outcome:
    """The same topic name in two namespaces is two topics."""
    driver, topic, group = world.start(), world.name("topic"), world.name("group")
    bodies = []
    for namespace in ("one", "two"):
        world.target.topic(world.target.namespaced(namespace, topic), "NORMAL")
        world.target.group(world.target.namespaced(namespace, group), False, 17, [])
        producer = world.producer(driver, topic, namespace=namespace)
        send(driver, producer, topic, f"in {namespace}")
    consumers = [world.simple(driver, topic, group, namespace=namespace) for namespace in ("one", "two")]
    for consumer in consumers:
        bodies += texts(receive(driver, consumer))
    return {"bodies": bodies, "apart": all(nothing(driver, consumer) for consumer in consumers)}


@scenario(
    {"order": ["9", "5", "1"], "priorities": [9, 5, 1]},
    needs=("priority",),
    wants=("priority",),
    but={"go": {"priorities": [None, None, None]}},
)
def priority(world: World) -> Outcome:
    """The larger number comes first. The Go client does not show it."""
    driver, topic, group = world.start(), world.topic("PRIORITY"), world.group()
    producer = world.producer(driver, topic)
    for number in (5, 1, 9):
        send(driver, producer, topic, str(number), priority=number)
    came = receive(driver, world.simple(driver, topic, group), 3)
    return {"order": texts(came), "priorities": [m.get("priority") for m in came]}
