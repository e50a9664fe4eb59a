"""Quotas, sizes, unique ids, priorities and purges under random commands, crashes and commits that fail."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.operate import purge
from popmq_server.embedded.rules.retention import floors, retention
from popmq_server.embedded.rules.sending import unique
from popmq_server.errors import Refused
from popmq_server.values.leased import Leased
from popmq_server.values.message import Extra
from tests.engine.faults import Fault, failing
from tests.engine.rig import DAY, MINUTE, SECOND, Rig, message, parsed
from tests.engine.traffic.traffic import TOPICS, Traffic, group

MIB = 1 << 20


class LimitedTraffic(Traffic):
    """Topic t has priorities and unique ids, topic u forgets by size; both have quotas, and are purged now and then."""

    def first(self) -> list[Any]:
        quotas: dict[str, Any] = {"send_messages_per_s": 30, "pop_messages_per_s": 20}
        return [
            ask.CreateTopic("t", 3, False, DAY, "PRIORITY", MIB, 10 * SECOND, **quotas),
            ask.CreateTopic("u", 2, True, DAY, "NORMAL", MIB, message_bytes_max=MIB // 3, **quotas),
            replace(group("g", 3), in_flight_max=20),
            group("h", 2),
        ]

    def send(self) -> ask.Send:
        topic = self.chance.choice(TOPICS)
        self.sent += 1
        entries = []
        for place in range(self.chance.randint(1, 4)):
            size = self.chance.choice([1, 1000, MIB // 8, MIB // 4])
            name = f"{self.chance.randint(0, 40)}" if topic == "t" else f"{self.sent}.{place}"
            made = message(f"{self.sent}:".ljust(size, "x"), name)
            entries.append(made._replace(extra=Extra(priority=self.chance.randint(0, 4))) if topic == "t" else made)
        return ask.Send(topic, tuple(entries))

    def redrive(self) -> Any:
        """Not here: a dead letter outlives the purge of its topic, and a redrive is not held to its limit."""
        return self.pop()

    def operate(self) -> Any:
        topic = self.chance.choice(TOPICS)
        return self.chance.choice(
            [
                ask.PurgeTopic(topic),
                ask.PurgeTopic("%DLQ%g"),
                ask.UpdateTopic(topic, 0, None, (("bytes_max", self.chance.choice([MIB, 2 * MIB])),)),
                ask.UpdateTopic("t", 0, None, (("unique_ids_ms", self.chance.choice([SECOND, 10 * SECOND, DAY])),)),
                ask.UpdateTopic(topic, 0, None, (("pop_messages_per_s", self.chance.choice([0, 5, 50])),)),
                ask.UpdateGroup("g", {"in_flight_max": self.chance.choice([1, 20])}),
            ]
        )


class Witness:
    """What must not happen, whatever does: an old message after a purge, an id twice, a topic beyond its limit."""

    def __init__(self, rig: Rig, traffic: LimitedTraffic) -> None:
        self.rig = rig
        self.traffic = traffic
        self.purged = dict.fromkeys(TOPICS, 0)
        self.got = self.purges = 0

    def saw(self, sent_before: int, commands: list[Any], results: list[Any]) -> None:
        """Purges of a commit come before its sends, and pops last."""
        for command, result in zip(commands, results, strict=True):
            if not isinstance(command, ask.PurgeTopic) or isinstance(result, Refused):
                continue
            if result[1] != purge.NOT_BEGUN and command.name in TOPICS:
                self.purged[command.name] = sent_before
                self.purges += 1
        for command, result in zip(commands, results, strict=True):
            if isinstance(result, Leased) and result.sealed is None:
                self.saw_rows(command.topic, result)

    def saw_rows(self, topic: str, popped: Leased) -> None:
        for row in popped.rows:
            self.got += 1
            assert int(parsed(row[0]).body.decode().partition(":")[0]) > self.purged[topic], "it was purged"

    def judge(self) -> None:
        assert self.rig.findings() == []
        state = self.rig.core.state
        for topic_id, topic in state.topics.items():
            stat = state.topic_stat.get(topic_id)
            if topic.name in TOPICS and stat is not None and topic_id not in state.trims:
                assert stat.bytes <= 2 * MIB, "the highest of its limits: a lower one takes only what is finished"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_everything_holds_under_random_commands_crashes_and_failing_commits(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "popmq")
    for module, name, few in (
        (purge, "PURGE_KEYS_MAX", 5),
        (purge, "POSITIONS_MAX", 1),
        (floors, "POSITIONS_MAX", 1),
        (retention, "LOOKS_MAX", 40),
        (unique, "SWEEP_MAX", 7),
    ):
        monkeypatch.setattr(module, name, few)
    rig, traffic = Rig(tmp_path / "data", map_bytes=1 << 27), LimitedTraffic(seed)
    rig.run(*traffic.first())
    witness = Witness(rig, traffic)
    for step in range(120):
        sent_before, commands = traffic.sent, traffic.group()
        fault = traffic.chance.choice([Fault.NONE] * 9 + [Fault.MAP_ONCE, Fault.FULL_ONCE, Fault.MAP])
        with failing(rig.store, fault):
            results = rig.run(*commands)
        traffic.learn(commands, results)
        witness.saw(sent_before, commands, results)
        rig.skip(traffic.pause_ms())
        if traffic.chance.random() < 0.1:
            rig.crash()
        if step % 8 == 0:
            witness.judge()
        if traffic.chance.random() < 0.3:
            rig.settle()
    rig.advance(MINUTE)
    witness.judge()
    assert (witness.got > 20, witness.purges > 0) == (True, True), "the history was not dull"
    rig.abandon()
