"""Push consumers: listeners that fail, take long, join, leave and die."""

import itertools
import time

from tests.interop.scenarios import Outcome, scenario
from tests.interop.scenarios.order import dead_letters
from tests.interop.world import World, listened, send, text, texts


def _bodies(events: list[dict[str, object]]) -> list[str]:
    return sorted(text(e["message"]) for e in events)  # type: ignore[arg-type]


@scenario({"heard": ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"], "attempts": [1], "left": []}, needs=("push",))
def listener(world: World) -> Outcome:
    """Each message reaches the listener once."""
    driver, topic, group = world.start(), world.topic(), world.group()
    producer = world.producer(driver, topic)
    consumer = world.push(driver, topic, group)
    for number in range(10):
        send(driver, producer, topic, str(number))
    heard = listened(driver, consumer, 10)
    driver.call("stop", name=consumer)
    late = world.push(driver, topic, group)
    left = listened(driver, late, 1, within=4)
    attempts = sorted({e["message"].get("attempt") for e in heard})
    return {"heard": _bodies(heard), "attempts": attempts, "left": _bodies(left)}


@scenario({"heard": ["a1", "a2"]}, needs=("push",))
def listener_of_a_tag(world: World) -> Outcome:
    """The listener hears what its filter lets through."""
    driver, topic, group = world.start(), world.topic(), world.group()
    producer = world.producer(driver, topic)
    consumer = world.push(driver, topic, group, subscriptions={topic: {"tag": "a"}})
    for body in ("a1", "b1", "a2", "b2"):
        send(driver, producer, topic, body, tag=body[0])
    listened(driver, consumer, 2)
    return {"heard": _bodies(listened(driver, consumer, 3, within=2))}


@scenario(
    {"calls": [False, False, True], "attempts": [1, 2, 3], "pauses": "the group's", "others": ["good"]},
    needs=("push",),
)
def listener_fails(world: World) -> Outcome:
    """What failed comes again after the group's backoff, here 2 s, with a higher attempt; others do not wait.

    A RocketMQ broker looks for lapsed leases each few seconds, and gives one back up to 5.5 s late.
    """
    driver, topic, group = world.start(), world.topic(), world.group(backoff_s=[2])
    producer = world.producer(driver, topic)
    consumer = world.push(driver, topic, group, fail={"bad": 2})
    for body in ("bad", "good"):
        send(driver, producer, topic, body)
    listened(driver, consumer, 2, within=90, ok=True)
    events = driver.events("listened", consumer)
    bad = [e for e in events if text(e["message"]) == "bad"]
    pauses = [(b["at_ms"] - a["at_ms"]) / 1000 for a, b in itertools.pairwise(bad)]
    return {
        "calls": [e["ok"] for e in bad],
        "attempts": [e["message"].get("attempt") for e in bad],
        "pauses": "the group's" if pauses and all(1.5 < p < 8 for p in pauses) else [round(p) for p in pauses],
        "others": _bodies([e for e in events if text(e["message"]) == "good"]),
    }


@scenario(
    {"attempts": [1, 2, 3], "dead": ["poison"], "tag": "t", "properties": {"x": "y"}, "id": "the sender's"},
    needs=("push",),
)
def dead_letter(world: World) -> Outcome:
    """After the last attempt the message is in the dead-letter topic, with all that it had."""
    driver, topic, group = world.start(), world.topic(), world.group(max_attempts=3, backoff_s=[1])
    producer = world.producer(driver, topic)
    consumer = world.push(driver, topic, group, fail={"poison": -1})
    receipt = send(driver, producer, topic, "poison", tag="t", properties={"x": "y"})
    events = listened(driver, consumer, 3, within=120)
    letters = dead_letters(world, driver, group)
    events = driver.events("listened", consumer)
    first = letters[0] if letters else {"tag": None, "properties": None, "message_id": None}
    return {
        "attempts": [e["message"].get("attempt") for e in events],
        "dead": texts(letters),
        "tag": first.get("tag"),
        "properties": first["properties"],
        "id": "the sender's" if first["message_id"] == receipt["message_id"] else "another",
    }


@scenario({"both_work": True, "lost": [], "twice": []}, needs=("push",))
def join_and_leave(world: World) -> Outcome:
    """A second consumer joins and gets its part; the first one leaves, and nothing is lost or comes twice."""
    one, other, topic, group = world.start(), world.start(), world.topic(), world.group()
    producer = world.producer(one, topic)
    first = world.push(one, topic, group)
    sent = [f"{n:03}" for n in range(20)]
    for body in sent:
        send(one, producer, topic, body)
    listened(one, first, 20)
    second = world.push(other, topic, group)
    until = time.monotonic() + 25
    while not other.events("listened", second) and time.monotonic() < until:
        sent.append(f"{len(sent):03}")
        send(one, producer, topic, sent[-1])
        time.sleep(0.2)
    both = bool(other.events("listened", second)) and bool(one.events("listened", first))
    one.call("stop", name=first, timeout_s=60)
    for _ in range(20):
        sent.append(f"{len(sent):03}")
        send(one, producer, topic, sent[-1])
    other.wait_for(lambda events: any(text(e["message"]) == sent[-1] for e in events if "message" in e), 30)
    time.sleep(1)  # what came twice would have come by then: nothing tells that nothing comes
    heard = [text(e["message"]) for d, name in ((one, first), (other, second)) for e in d.events("listened", name)]
    return {
        "both_work": both,
        "lost": sorted(set(sent) - set(heard)),
        "twice": sorted({body for body in heard if heard.count(body) > 1}),
    }


@scenario({"held": ["h0", "h1"], "lost": [], "twice": []}, needs=("push",), long=True)
def killed(world: World) -> Outcome:
    """A consumer dies with two messages in its hands; the other one gets them when the dead one's lease is over."""
    one, other, topic, group = world.start(), world.start(), world.topic(), world.group()
    sender = world.start()
    producer = world.producer(sender, topic)
    first = world.push(one, topic, group, take_ms={"h0": 600_000, "h1": 600_000})
    sent = ["h0", "h1", *(str(n) for n in range(10))]
    for body in sent:
        send(sender, producer, topic, body)
    listened(one, first, 10)
    held = one.wait_for(lambda events: _held(events) if len(_held(events)) == 2 else [], 20)
    done = [text(e["message"]) for e in one.events("listened", first)]
    time.sleep(1)  # the acks of what was done are on their way
    one.kill()
    second = world.push(other, topic, group)
    heard = done + texts([e["message"] for e in listened(other, second, 2, within=150)])
    return {
        "held": sorted(held),
        "lost": sorted(set(sent) - set(heard)),
        "twice": sorted({body for body in heard if heard.count(body) > 1}),
    }


def _held(events: list[dict[str, object]]) -> list[str]:
    bodies = [text(e["message"]) for e in events if e["event"] == "listening"]  # type: ignore[arg-type]
    return [body for body in bodies if body.startswith("h")]


@scenario({"calls": 1, "ok": [True]}, needs=("push",), long=True)
def slow_listener(world: World) -> Outcome:
    """A listener that takes longer than the lease of 60 s: it is renewed, so that no second call begins."""
    driver, topic, group = world.start(), world.topic(), world.group()
    producer = world.producer(driver, topic)
    consumer = world.push(driver, topic, group, take_ms=80_000)
    send(driver, producer, topic, "slow")
    events = listened(driver, consumer, 1, within=110)
    driver.heard("listening", consumer, 2, 25)
    return {"calls": len(driver.events("listening", consumer)), "ok": [e["ok"] for e in events][:1]}
