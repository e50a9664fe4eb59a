"""Messages that are delivered later, or perhaps never: delay, recall, transactions."""

import time

from tests.interop.scenarios import Outcome, scenario
from tests.interop.world import World, nothing, receive, refusal, send, text, texts


@scenario({"came": ["late"], "early": False, "over_two_seconds_late": False, "time_shown": True})
def delay(world: World) -> Outcome:
    """A delayed message comes at its time (some clients send whole seconds), and shows it."""
    driver, topic, group = world.start(), world.topic("DELAY"), world.group()
    producer = world.producer(driver, topic)
    consumer = world.simple(driver, topic, group)
    due = time.time() + 4
    send(driver, producer, topic, "late", delay_ms=4_000)
    came = receive(driver, consumer, ack=False)
    at = time.time()
    shown = came[0].get("deliver_at_ms") if came else None
    return {
        "came": texts(came),
        "early": at < due - 1.05,
        "over_two_seconds_late": at > due + 2,
        "time_shown": shown is not None and abs(shown / 1000 - due) <= 1.5,
    }


@scenario(
    {"recalled": True, "came": ["kept"], "again": "refused", "forged": "refused"},
    needs=("recall",),
    but={"python": {"again": "accepted"}},
)
def recall(world: World) -> Outcome:
    """A delayed message is taken back by its handle; what was taken back cannot be again.

    The Python client takes MESSAGE_NOT_FOUND for a success, as it does with receives.
    """
    driver, topic, group = world.start(), world.topic("DELAY"), world.group()
    producer = world.producer(driver, topic)
    consumer = world.simple(driver, topic, group)
    gone = send(driver, producer, topic, "recalled", delay_ms=6_000)
    send(driver, producer, topic, "kept", delay_ms=6_000)
    handle = {"topic": topic, "recall_handle": gone["recall_handle"]}
    answer = driver.call("recall", name=producer, **handle)
    again = refusal(lambda: driver.call("recall", name=producer, **handle))
    forged = refusal(lambda: driver.call("recall", name=producer, topic=topic, recall_handle="forged"))
    came = receive(driver, consumer) + receive(driver, consumer, 1, within=3)
    return {
        "recalled": answer["message_id"] == gone["message_id"],
        "came": texts(came),
        "again": "accepted" if again == "none" else "refused",
        "forged": "accepted" if forged == "none" else "refused",
    }


@scenario({"came": ["committed"], "id": True, "left": "nothing"}, needs=("transaction",))
def transaction(world: World) -> Outcome:
    """A committed message comes, one that was rolled back does not."""
    driver, topic, group = world.start(), world.topic("TRANSACTION"), world.group()
    producer = world.producer(driver, topic, checker="unknown")
    consumer = world.simple(driver, topic, group)
    send(driver, producer, topic, "rolled back", transaction="rollback")
    receipt = send(driver, producer, topic, "committed", transaction="commit")
    came = receive(driver, consumer)
    return {
        "came": texts(came),
        "id": [m["message_id"] for m in came] == [receipt["message_id"]],
        "left": "nothing" if nothing(driver, consumer) else "something",
    }


@scenario(
    {"before": "nothing", "checked": ["forgotten"], "not_told": [], "came": ["forgotten"], "rolled_back": "nothing"},
    needs=("transaction",),
)
def check_back(world: World) -> Outcome:
    """Who forgot a transaction is asked for its end, with the whole message; one says commit, one rollback."""
    driver, topics, groups = world.start(), [], []
    for _ in range(2):
        topics.append(world.topic("TRANSACTION"))
        groups.append(world.group())
    commits = world.producer(driver, topics[0], checker="commit")
    rolls_back = world.producer(driver, topics[1], checker="rollback")
    consumers = [world.simple(driver, topic, group) for topic, group in zip(topics, groups, strict=True)]
    more = {"tag": "t", "keys": ["k"], "properties": {"x": "y"}}
    receipt = send(driver, commits, topics[0], "forgotten", transaction="none", **more)
    send(driver, rolls_back, topics[1], "regretted", transaction="none")
    before = nothing(driver, consumers[0])
    for name in (commits, rolls_back):
        driver.heard("check", name, 1, 75)
    checks = driver.events("check", commits)
    whole = {"message_id": receipt["message_id"], **more}
    told = checks[0]["message"] if checks else {}
    return {
        "before": "nothing" if before else "something",
        "checked": sorted({text(e["message"]) for e in checks}),
        "not_told": sorted(key for key, value in whole.items() if told.get(key) != value),
        "came": texts(receive(driver, consumers[0])),
        "rolled_back": "nothing" if nothing(driver, consumers[1]) else "something",
    }


@scenario({"checks": ["unknown", "commit"], "came": ["undecided"]}, needs=("transaction",), long=True)
def check_back_unknown(world: World) -> Outcome:
    """Who does not know yet is asked again."""
    driver, topic, group = world.start(), world.topic("TRANSACTION"), world.group()
    producer = world.producer(driver, topic, checker=["unknown", "commit"])
    consumer = world.simple(driver, topic, group)
    send(driver, producer, topic, "undecided", transaction="none")
    driver.heard("check", producer, 2, 120)
    came = receive(driver, consumer)
    return {"checks": [e["answer"] for e in driver.events("check", producer)], "came": texts(came)}
