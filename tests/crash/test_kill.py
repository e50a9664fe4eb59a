"""A broker that is killed at any moment loses nothing that it answered, and gives or sends nothing twice."""

import random
import struct
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

import popmq
from popmq_verify import campaign, powercut
from popmq_verify.process.broker_process import BrokerProcess
from tests.crash.conftest import Scale

MINUTE_MS = 60_000
NS_PER_S = 1_000_000_000


@pytest.mark.mechanism("I.01")
@pytest.mark.smoke
@pytest.mark.chaos
def test_answered_requests_survive_kill_9_under_load(tmp_path: Path, scale: Scale, show: Callable[[str], None]) -> None:
    verdict = campaign.run(tmp_path, kills=scale.pick(short=5, whole=60), seed=scale.seed)
    show(verdict.table())
    assert not verdict.findings, f"seed {scale.seed}: {verdict.findings[:20]}"
    # A campaign that met nothing proves nothing.
    assert verdict.figures["pop unknown"] + verdict.figures["send unknown"] + verdict.figures["ack unknown"] > 0
    assert verdict.figures["of them second and later attempts"] > 0


@pytest.mark.chaos
def test_retention_drops_only_finished_messages_whenever_the_broker_is_killed(
    tmp_path: Path, scale: Scale, show: Callable[[str], None]
) -> None:
    verdict = campaign.run(tmp_path, kills=scale.pick(short=3, whole=60), seed=scale.seed, dropping=True)
    show(verdict.table())
    assert not verdict.findings, f"seed {scale.seed}: {verdict.findings[:20]}"
    figures = verdict.figures
    assert figures["messages dropped by retention"] == figures["messages sent"] > 0, "all of it was finished"


# ── Schedules ────────────────────────────────────────────────────────────────────────────────────────────────────────


class WallClock:
    """The wall clock of a broker with the shim; it is moved ahead while the broker runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ahead_ns = 0
        self.forward(0)

    def forward(self, seconds: int) -> None:
        self._ahead_ns += seconds * NS_PER_S
        self._path.touch()
        with self._path.open("r+b", buffering=0) as file:  # mapped by the broker: never a shorter file
            file.write(struct.pack("q", self._ahead_ns))

    def now_ms(self) -> int:
        return (time.time_ns() + self._ahead_ns) // 1_000_000


@pytest.mark.chaos
@pytest.mark.usefixtures("shim")
def test_each_minute_is_sent_once_however_often_the_broker_is_killed(
    tmp_path: Path, scale: Scale, show: Callable[[str], None]
) -> None:
    chance, clock = random.Random(scale.seed), WallClock(tmp_path / "clock")
    environment = {
        "LD_PRELOAD": str(powercut.compile_shim(tmp_path)),
        "POPMQ_CUT_LOG": "/dev/null",
        "POPMQ_CUT_FOLDER": str(tmp_path / "data"),
        "POPMQ_CUT_CLOCK": str(tmp_path / "clock"),
    }
    kills = scale.pick(short=5, whole=100)
    with BrokerProcess(tmp_path / "data", environment=environment) as broker:
        with popmq.Client(broker.endpoint) as client:
            client.topics.create("minutes", queues=1)
            client.topics.create("other", queues=1)
            first_ms = client.schedules.create("each", "* * * * *", "minutes", "tick", missed="all").next_ms
        for _ in range(kills):
            broker.wait_ready()
            with popmq.Client(broker.endpoint) as client:
                for _ in range(chance.randint(1, 6)):
                    clock.forward(chance.randint(10, 90))
                    client.send("other", "a commit: the broker looks at the clock")
            time.sleep(chance.uniform(0, 0.02))
            broker.kill()
            broker.spawn()
        broker.wait_ready()
        with popmq.Client(broker.endpoint) as client:
            end_ms = clock.now_ms()
            client.send("other", "a commit: the broker looks at the clock")
            while (schedule := client.schedules.get("each")).next_ms <= end_ms:
                time.sleep(0.05)
            sent = all_of(client, "minutes")
    show(f"schedules under kill -9, seed {scale.seed}: {kills} kills, {len(sent):,} occurrences")
    times_ms = range(first_ms, schedule.last_ms + 1, MINUTE_MS)
    assert sent == [f"each@{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}" for ms in times_ms]
    assert schedule.next_ms == schedule.last_ms + MINUTE_MS > end_ms
    assert (schedule.sent, schedule.skipped, schedule.failed) == (len(sent), 0, 0)
    assert len(sent) > kills, "a campaign in which nothing is due proves nothing"


def all_of(client: popmq.Client, topic: str) -> list[str]:
    """The message ids of a topic with one queue, in their order."""
    found: list[str] = []
    offset = 0
    while (page := client.messages.browse(topic, offset=offset, max_messages=100)).deliveries:
        found += [one.message_id for one in page.deliveries]
        offset = page.next_offset
    return found
