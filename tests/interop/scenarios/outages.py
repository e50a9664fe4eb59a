"""The server is not there yet, or goes away without a word."""

import time

from tests.interop.scenarios import Outcome, scenario
from tests.interop.world import World, listened, receive, send, texts, until_ok


@scenario({"started": True, "came": ["hello"]}, wants=("restart",), own=True)
def before_the_server(world: World) -> Outcome:
    """A client that is started first works once the server is there; one that raises is started again by its user."""
    driver, topic, group = world.start(), world.topic(), world.group()
    world.target.kill()
    names: dict[str, str] = {}

    def start_producer() -> None:
        names["producer"] = world.producer(driver, topic)

    def start_consumer() -> None:
        names["consumer"] = world.simple(driver, topic, group)

    early = world.name("early")
    waiting = driver.begin("producer", name=early, topics=[topic], **world.at)
    time.sleep(2)  # the client tries in vain meanwhile, which it reports to nobody
    world.target.start()
    started = until_ok(start_producer) and until_ok(start_consumer)
    try:
        waiting.result(60)
        names["producer"] = early
    except Exception:  # this client gave up by itself, as it documents; the one started after it does the work
        pass
    until_ok(lambda: send(driver, names["producer"], topic, "hello"))
    return {"started": started, "came": sorted(set(texts(receive(driver, names["consumer"], within=30))))}


@scenario({"sent": True, "came": ["after", "before"]}, wants=("restart",), own=True)
def restart(world: World) -> Outcome:
    """The server is killed and started again under a producer and a simple consumer, which go on; nothing is lost."""
    driver, topic, group = world.start(), world.topic(), world.group()
    producer = world.producer(driver, topic)
    consumer = world.simple(driver, topic, group)
    send(driver, producer, topic, "before")
    world.target.kill()
    world.target.start()
    sent = until_ok(lambda: send(driver, producer, topic, "after"))
    came: list[str] = []

    def take() -> None:
        came.extend(texts(receive(driver, consumer, 2 - len(set(came)), within=30)))

    until_ok(take)
    return {"sent": sent, "came": sorted(set(came))}


@scenario({"before": ["before"], "after": True}, needs=("push",), wants=("restart",), own=True)
def restart_under_push(world: World) -> Outcome:
    """The server is killed and started again under a push consumer, whose listener goes on."""
    driver, topic, group = world.start(), world.topic(), world.group()
    producer = world.producer(driver, topic)
    consumer = world.push(driver, topic, group)
    send(driver, producer, topic, "before")
    before = listened(driver, consumer, 1)
    world.target.kill()
    world.target.start()
    until_ok(lambda: send(driver, producer, topic, "after"))
    heard = listened(driver, consumer, 2, within=60)
    return {"before": texts(e["message"] for e in before), "after": "after" in texts(e["message"] for e in heard)}


@scenario({"checked": True, "came": ["forgotten"]}, needs=("transaction",), wants=("restart",), own=True, long=True)
def restart_in_a_transaction(world: World) -> Outcome:
    """A half message outlives the server's death; a producer that is started then is asked for its end."""
    driver, topic, group = world.start(), world.topic("TRANSACTION"), world.group()
    producer = world.producer(driver, topic, checker="commit")
    send(driver, producer, topic, "forgotten", transaction="none")
    world.target.kill()
    world.target.start()
    names: list[str] = []
    until_ok(lambda: names.append(world.producer(driver, topic, checker="commit")))
    checked = driver.heard("check", None, 1, 90)
    consumer = world.simple(driver, topic, group)
    return {"checked": bool(checked), "came": texts(receive(driver, consumer))}
