"""A chain of topics whose handlers send with their acks has each message once in each topic, whoever is killed."""

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import popmq
from harness.broker_process import BrokerProcess
from tests.crash.conftest import Scale
from tests.crash.settling import chain

BATCH = 20


def run(folder: Path, kills: int, seed: int) -> tuple[list[str], str]:
    """Kills the broker and the workers of a chain. Returns what is wrong, and a line about what was done."""
    chance, sent, killed = random.Random(seed), 0, Counter[str]()
    with BrokerProcess(folder / "data") as broker, contextlib.ExitStack() as stack:
        client = stack.enter_context(popmq.Client(broker.endpoint))
        chain.create(client)
        workers = [stack.enter_context(chain.WorkerProcess(broker.endpoint)) for _ in range(3)]
        for _ in range(kills):
            client.send("a", [str(number) for number in range(sent, sent + BATCH)])
            sent += BATCH
            time.sleep(chance.uniform(0, 0.8))
            for each in workers:
                each.check()
            killed[kill_one(chance, broker, workers)] += 1
        while chain.unfinished(client):
            for each in workers:
                each.check()
            time.sleep(0.1)
        found = {topic: chain.messages(client, topic) for topic in chain.TOPICS}
        acked = {row.topic: row.acked for row in client.broker.stats(group=chain.GROUP).groups}
        letters = sum(row.dead or 0 for row in client.broker.stats(group=chain.GROUP).groups)
    again = sum(row.properties.get("attempt", "1") != "1" for rows in found.values() for row in rows)
    wrong = [each for topic, rows in found.items() for each in compared(topic, [row.text() for row in rows], sent)]
    wrong += [f"{acked[topic]} acks in {topic}, {sent} were sent" for topic in "abc" if acked[topic] != sent]
    wrong += [f"{letters} dead letters"] * (letters > 0)
    done = f"{sent:,} messages in each of four topics, {again:,} of them by a second or later attempt"
    return (
        wrong,
        f"settled chain, seed {seed}: {killed['broker']} kills of the broker, {killed['worker']} of workers, {done}",
    )


def kill_one(chance: random.Random, broker: BrokerProcess, workers: list[chain.WorkerProcess]) -> str:
    """Kills and starts again the broker or a worker; which of them."""
    if chance.random() < 0.5:
        broker.kill()
        broker.spawn()
        broker.wait_ready()
        return "broker"
    victim = chance.choice(workers)
    victim.kill()
    victim.spawn()
    return "worker"


def compared(topic: str, texts: list[str], sent: int) -> list[str]:
    """What a topic has not once."""
    counts = Counter(texts)
    missing = [str(number) for number in range(sent) if str(number) not in counts]
    twice = [text for text, count in counts.items() if count > 1]
    return [f"{topic}: {what} {some[:10]}" for what, some in (("missing", missing), ("twice", twice)) if some]


@pytest.mark.chaos
def test_each_message_is_once_in_each_topic_whoever_is_killed(
    tmp_path: Path, scale: Scale, show: Callable[[str], None]
) -> None:
    wrong, told = run(tmp_path, kills=scale.pick(short=8, whole=1000), seed=scale.seed)
    show(told)
    assert wrong == [], told
