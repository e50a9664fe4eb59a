"""A migration that is killed again and again: three groups at different places, and what each finds at last.

load     messages 0, 1, … on the source; each group acks its part, and leaves leases, retries and backoffs behind
kills    `popmq migrate` with SIGKILL: most while it copies, the last ones while it looks at the groups
verdict  each group reads everything on the target: unfinished ⊆ found, and what was repeated
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import popmq
from harness.broker_process import BrokerProcess

PROGRAM = [sys.executable, "-c", "from popmq_cli.main import main; main()"]
TOPIC = "orders"
#: The part of the messages that a group has finished.
PARTS = {"late": 0.1, "half": 0.5, "early": 0.9}
#: Messages that each group holds when the migration begins: leased, released, in backoff.
HELD = 30
BATCH = 1000
POPPED = 256
#: Kills of the end, when all is copied.
LATE_KILLS = 3
LOOK_S = 0.01


@dataclass
class Verdict:
    """What the groups found; `missing` and `repeated` by group."""

    kills: dict[str, int] = field(default_factory=dict)  # by where it was
    seconds: dict[str, float] = field(default_factory=dict)
    unfinished: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    repeated: dict[str, int] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)  # how many are repeated, as the command says
    stored: int = 0  # on the target

    def table(self) -> str:
        """For people."""
        lines = [f"  {group}: {count:,} unfinished, {self.missing[group]} missing, {self.repeated[group]:,} repeated"
                 for group, count in self.unfinished.items()]  # fmt: skip
        kills = ", ".join(f"{count} {where}" for where, count in self.kills.items())
        took = ", ".join(f"{name} {took:.1f} s" for name, took in self.seconds.items())
        return "\n".join([f"kills: {kills}; {took}; {self.stored:,} stored", *lines])


@dataclass(frozen=True)
class Ways:
    """What differs by the engines. `own`: makes the names of topic and groups those of one campaign.

    `held`: messages that each group holds when it begins; a source that does not tell what is held has none, and is
    migrated with `weaker`. `wait_s`: how long a reader waits for messages that come later.
    """

    own: str = ""
    held: int = HELD
    weaker: bool = False
    wait_s: float = 0.0

    @property
    def topic(self) -> str:
        """Its name."""
        return TOPIC + self.own

    def group(self, name: str) -> str:
        """The name of a group of PARTS."""
        return name + self.own


def run(folder: Path, *, messages: int, kills: int, seed: int) -> Verdict:
    """Runs the campaign on two brokers of its own."""
    with BrokerProcess(folder / "a", "--sync", "none") as a, BrokerProcess(folder / "b", "--sync", "none") as b:
        return between(a, b, Ways(), messages=messages, kills=kills, seed=seed)


def between(a: BrokerProcess, b: BrokerProcess, ways: Ways, *, messages: int, kills: int, seed: int) -> Verdict:
    """Runs the campaign from one broker or gateway to another one."""
    verdict, dice = Verdict(), random.Random(seed)
    with popmq.Client(a.endpoint) as source, popmq.Client(b.endpoint) as target:
        began = time.monotonic()
        unfinished = _load(source, messages, ways)
        verdict.seconds["load"] = time.monotonic() - began
        words = command(a, b, ways.topic, *(["--accept-weaker"] if ways.weaker else []))
        _kill(words, target, ways, messages, kills, dice, verdict)
        began = time.monotonic()
        (row,) = migrated(words)
        verdict.seconds["last run"] = time.monotonic() - began
        verdict.told = {each["group"].removesuffix(ways.own): each["repeated"] for each in row["groups"]}
        verdict.stored = _stored(target, ways.topic)
        for group, wanted in unfinished.items():
            found = _read(target, group, ways)
            verdict.unfinished[group] = len(wanted)
            verdict.missing[group] = len(wanted - set(found))
            verdict.repeated[group] = len(found) - len(wanted & set(found))
    return verdict


def _load(source: popmq.Client, messages: int, ways: Ways) -> dict[str, set[int]]:
    """Sends all, and lets each group do its part; returns what each has not finished."""
    source.topics.create(ways.topic)
    for name in PARTS:
        source.groups.create(ways.group(name))
    for first in range(0, messages, BATCH):
        numbers = range(first, min(messages, first + BATCH))
        source.send(ways.topic, [popmq.Message(f"{number:<200}", message_id=str(number)) for number in numbers])
    unfinished = {}
    for name, part in PARTS.items():
        group, left = ways.group(name), set(range(messages))
        while len(left) > messages * (1 - part):
            source.ack(popped := source.pop(ways.topic, group, POPPED, wait=ways.wait_s))
            left -= {int(each.text()) for each in popped}
        if ways.held:
            held = source.pop(ways.topic, group, ways.held, invisible=3600)
            source.release(held[::3], 0.0)
            source.release(held[1::3], 3600.0)
        unfinished[name] = left
    return unfinished


def command(a: BrokerProcess, b: BrokerProcess, topic: str, *more: str) -> list[str]:
    """The words of `popmq migrate`."""
    return [*PROGRAM, "migrate", "--from", a.endpoint, "--to", b.endpoint, topic, "--json", *more]


def _kill(
    words: list[str], target: popmq.Client, ways: Ways, messages: int, kills: int, dice: random.Random,
    verdict: Verdict,
) -> None:  # fmt: skip
    """Kills as many runs, each at a random moment that is later than that of the one before."""
    late = min(LATE_KILLS, kills // 3)
    moments = sorted(dice.uniform(0, messages) for _ in range(kills - late))
    began = time.monotonic()
    for moment in [*moments, *[messages] * late]:
        program = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while program.poll() is None and _stored(target, ways.topic) < moment:
            time.sleep(LOOK_S)
        time.sleep(dice.uniform(0, 0.1 if moment < messages else 1.0))
        where = "after its end" if program.poll() is not None else "at the end" if moment == messages else "in the copy"
        verdict.kills[where] = verdict.kills.get(where, 0) + 1
        program.send_signal(signal.SIGKILL)
        program.wait()
    verdict.seconds["killed runs"] = time.monotonic() - began


def _stored(target: popmq.Client, topic: str) -> int:
    try:
        return target.broker.stats(topic).topics[0].messages
    except popmq.errors.TopicNotFound:
        return 0


def migrated(words: list[str]) -> list[dict[str, Any]]:
    """The rows of a run that ends."""
    done = subprocess.run(words, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def _read(target: popmq.Client, name: str, ways: Ways) -> list[int]:
    """All that the group gets, as their numbers."""
    found: list[int] = []
    group = ways.group(name)
    while popped := target.pop(ways.topic, group, 4096, max_bytes=8 << 20, wait=ways.wait_s):
        found += [int(each.text()) for each in popped]
        target.ack(popped)
    return found
