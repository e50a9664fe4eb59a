"""One message, two faces: what a RocketMQ client sends, PopMQ's own SDK receives, and the other way round."""

import time
from collections.abc import Callable
from functools import partial

import popmq
from tests.interop.scenarios import Outcome, scenario
from tests.interop.world import World, encoded, receive, texts

BODY = b"\x00\xff binary"
#: Clients that tell stacks and handle no message out of turn, and one that answers nothing to either.
UNABLE: Outcome = {"good": "NOT_IMPLEMENTED", "bad": "NOT_IMPLEMENTED", "calls": []}
SILENT: Outcome = {"stack": "Unavailable", "good": "Unavailable", "bad": "Unavailable", "calls": []}
PARTS: Outcome = {"tag": "paid", "keys": ["k1", "k2"], "properties": {"region": "eu", "Umlaut": "ä"}}


@scenario({"body": True, "id": True, **PARTS}, wants=("popmq",))
def to_the_sdk(world: World) -> Outcome:
    """Sent by the official client, received by the SDK."""
    driver, topic, group = world.start(), world.topic(), world.group()
    producer = world.producer(driver, topic)
    receipt = driver.call("send", name=producer, message={"topic": topic, "body": encoded(BODY), **PARTS})
    with popmq.Client(world.target.endpoint) as client:
        [came] = client.pop(topic, group, max_messages=1, wait=20)
        came.ack()
    return {
        "body": came.body == BODY,
        "id": came.message_id == receipt["message_id"],
        "tag": came.tag,
        "keys": sorted([came.key, *came.more_keys]),
        "properties": dict(came.properties),
    }


@scenario({"body": True, "id": True, **PARTS}, wants=("popmq",))
def from_the_sdk(world: World) -> Outcome:
    """Sent by the SDK, received by the official client."""
    driver, topic, group = world.start(), world.topic(), world.group()
    message = popmq.Message(BODY, "k1", "paid", {"region": "eu", "Umlaut": "ä"}, ["k2"])
    with popmq.Client(world.target.endpoint) as client:
        receipt = client.send(topic, message)
    [came] = receive(driver, world.simple(driver, topic, group))
    return {
        "body": came["body"] == encoded(BODY),
        "id": came["message_id"] == receipt.message_id,
        "tag": came["tag"],
        "keys": came["keys"],
        "properties": came["properties"],
    }


@scenario({"order": ["a1", "a2"], "group": ["a"]}, wants=("popmq",))
def order_from_the_sdk(world: World) -> Outcome:
    """Messages of a message group, sent by the SDK, come to the official client one after another."""
    driver, topic, group = world.start(), world.topic("FIFO"), world.group(fifo=True)
    consumer = world.simple(driver, topic, group)
    with popmq.Client(world.target.endpoint) as client:
        for body in ("a1", "a2"):
            client.send(topic, popmq.Message(body, message_group="a"))
    came = receive(driver, consumer, 2)
    return {"order": texts(came), "group": sorted({m["group"] for m in came})}


@scenario(
    {"stack": "OK", "good": "OK", "bad": "FAILED_TO_CONSUME_MESSAGE", "calls": ["good", "bad"]},
    needs=("push",),
    wants=("popmq",),
    but={"python": SILENT, "node": UNABLE, "go": UNABLE},
)
def asked_by_an_operator(world: World) -> Outcome:
    """A push consumer tells its stacks, and its listener is handed a message of a topic that it does not read, once."""
    return _asked(world, world.target.endpoint)


@scenario(
    {"stack": "OK", "good": "OK", "bad": "FAILED_TO_CONSUME_MESSAGE", "calls": ["good", "bad"]},
    needs=("push",),
    wants=("gateways",),
    but={"python": SILENT, "node": UNABLE, "go": UNABLE},
)
def asked_at_another_gateway(world: World) -> Outcome:
    """The same, where the operator asks a gateway that the consumer is not connected to."""
    return _asked(world, world.target.another)


def _asked(world: World, operators: str) -> Outcome:
    """`operators`: the endpoint that the operator calls."""
    driver, topic, group, elsewhere = world.start(), world.topic(), world.group(), world.topic()
    consumer = world.push(driver, topic, group, fail={"bad": -1})
    with popmq.Client(world.target.endpoint) as own:
        who = _only_client(own, group)
    with popmq.Client(operators) as client:
        told = {"stack": _answer(lambda: client.sessions.stack(who))}
        for body in ("good", "bad"):
            at = client.send(elsewhere, popmq.Message(body))
            told[body] = _answer(partial(client.sessions.verify_message, who, elsewhere, at.queue, at.offset))
    time.sleep(2)  # a second one would have come by then
    return {**told, "calls": texts([e["message"] for e in driver.events("listening", consumer)])}


def _only_client(client: popmq.Client, group: str) -> str:
    """The client id of the group's consumer, which has just started."""
    for _ in range(40):
        if sessions := client.sessions.list(group):
            return sessions[0].client_id
        time.sleep(0.5)
    raise AssertionError(f"nobody consumes for {group}")


def _answer(ask: Callable[[], popmq.ClientAnswer]) -> str:
    """The word of the client, or what its silence is for the operator."""
    try:
        return ask().code
    except popmq.PopMQError as error:
        return type(error).__name__
