"""FIFO topics: within a message group one after another, whatever fails."""

from tests.interop.harness import Driver, Line
from tests.interop.scenarios import Outcome, scenario
from tests.interop.world import World, listened, receive, send, text, texts, until_ok


def _send_all(driver: Driver, producer: str, topic: str, groups: str = "ab", each: int = 4) -> None:
    for number in range(1, each + 1):
        for group in groups:
            send(driver, producer, topic, f"{group}{number}", group=group)


def _calls(events: list[Line], group: str) -> list[str]:
    """The listener's calls for one message group; failed ones end in "!"."""
    return [text(e["message"]) + ("" if e["ok"] else "!") for e in events if e["message"]["group"] == group]


@scenario(
    {"a": ["a1", "a2!", "a2!", "a2", "a3", "a4"], "b": ["b1", "b2", "b3", "b4"]},
    needs=("push",),
    but={"go": {"a": ["a1", "a2!", "a3", "a4", "a2!", "a2"]}},
)
def fifo_failing(world: World) -> Outcome:
    """A message that fails twice holds back those behind it, and nobody else.

    The Go client goes on with the next message of what it received while it waits to try the failed one again.
    """
    driver, topic, group = world.start(), world.topic("FIFO"), world.group(fifo=True, backoff_s=[1])
    producer = world.producer(driver, topic)
    consumer = world.push(driver, topic, group, fail={"a2": 2})
    _send_all(driver, producer, topic)
    listened(driver, consumer, 8, ok=True)
    events = driver.events("listened", consumer)
    return {"a": _calls(events, "a"), "b": _calls(events, "b")}


@scenario(
    {"calls": ["a1", "a2!", "a2!", "a2!", "a3"], "dead": ["a2"]},
    needs=("push",),
    but={"go": {"calls": ["a1", "a2!", "a3", "a2!", "a2!"]}},
)
def fifo_dead_letter(world: World) -> Outcome:
    """A message without an attempt left goes to the dead-letter topic; then the next one comes."""
    driver, topic, group = world.start(), world.topic("FIFO"), world.group(True, max_attempts=3, backoff_s=[1])
    producer = world.producer(driver, topic)
    consumer = world.push(driver, topic, group, fail={"a2": -1})
    _send_all(driver, producer, topic, "a", 3)
    listened(driver, consumer, 2, ok=True)
    dead = texts(dead_letters(world, driver, group))
    return {"calls": _calls(driver.events("listened", consumer), "a"), "dead": dead}


@scenario({"came": ["a1", "a2", "a3", "a4"], "groups": ["a"], "in_flight": "held back"})
def fifo_simple(world: World) -> Outcome:
    """Receives of single messages: the next one of a message group comes when the one before it is acked."""
    driver, topic, group = world.start(), world.topic("FIFO"), world.group(fifo=True)
    producer = world.producer(driver, topic)
    consumer = world.simple(driver, topic, group)
    _send_all(driver, producer, topic, "a")
    came, early = [], 0
    for number in range(4):
        batch: list[Line] = []
        while not batch:
            batch = driver.call("receive", name=consumer, max=1, invisible_ms=20_000)["messages"]
        if number == 0:
            early = len(driver.call("receive", name=consumer, max=1, invisible_ms=20_000)["messages"])
        came += batch
        driver.call("ack", name=consumer, held=batch[0]["held"])
    groups = sorted({m["group"] for m in came})
    return {"came": texts(came), "groups": groups, "in_flight": "passed" if early else "held back"}


def dead_letters(world: World, driver: Driver, group: str, count: int = 1) -> list[Line]:
    """What another group reads from the dead-letter topic, which may not exist before its first message."""
    readers, letters = world.group(), list[Line]()

    def read() -> None:
        consumer = world.simple(driver, f"%DLQ%{group}", readers)
        letters.extend(receive(driver, consumer, count) + receive(driver, consumer, 1, within=1))

    until_ok(read, within=60, pause=2)
    return letters
