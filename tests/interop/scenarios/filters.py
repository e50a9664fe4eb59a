"""Tags and SQL92: what a group does not want never reaches it."""

from tests.interop.scenarios import Outcome, scenario
from tests.interop.world import World, receive, refusal, send, texts


@scenario({"a || b": ["a", "b"], "c": ["c"], "all": ["a", "b", "c", "plain"]})
def tags(world: World) -> Outcome:
    """One tag, one of two tags, everything; a message without a tag is part of everything only."""
    driver, topic = world.start(), world.topic()
    producer = world.producer(driver, topic)
    wanted = {"a || b": {"tag": "a || b"}, "c": {"tag": "c"}, "all": {}}
    consumers = {name: world.simple(driver, topic, world.group(), filter) for name, filter in wanted.items()}
    for tag in ("a", "b", "c"):
        send(driver, producer, topic, tag, tag=tag)
    send(driver, producer, topic, "plain")
    counts = {"a || b": 2, "c": 1, "all": 4}
    return {
        name: sorted(texts(receive(driver, one, counts[name]) + receive(driver, one, 1, within=1)))
        for name, one in consumers.items()
    }


@scenario({"numbers": ["dear"], "texts": ["cheap", "dear"], "tag": ["cheap"]})
def sql92(world: World) -> Outcome:
    """Comparisons of numbers and texts, and the tag as TAGS."""
    driver, topic = world.start(), world.topic()
    producer = world.producer(driver, topic)
    wanted = {
        "numbers": "price > 10 AND region IS NOT NULL",
        "texts": "region IN ('eu', 'us') AND price BETWEEN 1 AND 100",
        "tag": "TAGS = 'sale'",
    }
    consumers = {name: world.simple(driver, topic, world.group(), {"sql": sql}) for name, sql in wanted.items()}
    send(driver, producer, topic, "cheap", tag="sale", properties={"price": "5", "region": "eu"})
    send(driver, producer, topic, "dear", properties={"price": "50", "region": "us"})
    send(driver, producer, topic, "none", properties={"other": "1"})
    counts = {"numbers": 1, "texts": 2, "tag": 1}
    return {
        name: sorted(texts(receive(driver, one, counts[name]) + receive(driver, one, 1, within=1)))
        for name, one in consumers.items()
    }


@scenario({"code": 40010})
def bad_sql(world: World) -> Outcome:
    """What is no SQL92 is refused by its own code."""
    driver, topic, group = world.start(), world.topic(), world.group()

    def ask() -> None:
        consumer = world.simple(driver, topic, group, {"sql": "price >>> 10"})
        driver.call("receive", name=consumer, max=1, invisible_ms=10_000)

    return {"code": refusal(ask)}


@scenario({"before": ["a1"], "after": ["b2"]})
def filter_changed(world: World) -> Outcome:
    """A simple consumer subscribes anew with another tag: what is received from then on follows it."""
    driver, topic, group = world.start(), world.topic(), world.group()
    producer = world.producer(driver, topic)
    consumer = world.simple(driver, topic, group, {"tag": "a"})
    send(driver, producer, topic, "a1", tag="a")
    before = receive(driver, consumer)
    driver.call("subscribe", name=consumer, topic=topic, filter={"tag": "b"})
    send(driver, producer, topic, "a2", tag="a")
    send(driver, producer, topic, "b2", tag="b")
    return {"before": texts(before), "after": texts(receive(driver, consumer, 1) + receive(driver, consumer, 1, 1))}
