"""When rounds of retention begin: each minute, and earlier while many messages are stored, so that few pages are freed
at once.
"""

import itertools

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.retention import retention
from popmq_server.embedded.writer import housekeeping
from tests.engine.rig import MINUTE, SECOND, Rig, numbered

pytestmark = pytest.mark.usefixtures("a_chunk_a_commit")


@pytest.fixture(autouse=True)
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "ROUND_BYTES", 1000)


def chunks(rig: Rig) -> int:
    return len(rig.read("log"))


def flow(rig: Rig, seconds: int, size: int) -> int:
    """A message a second, acked at once; returns the most chunks that were there."""
    most = 0
    for number in range(seconds):
        rig.send(f"{number}." + "x" * size)
        rig.ack(rig.pop())
        rig.advance(SECOND)
        most = max(most, chunks(rig))
    return most


def flowing(rig: Rig) -> Rig:
    rig.pair()
    rig.do(ask.UpdateTopic("t", 0, (False, MINUTE)))
    rig.advance(MINUTE)
    return rig


def test_many_messages_are_dropped_seconds_after_their_time_and_not_minutes(rig: Rig) -> None:
    assert flow(flowing(rig), 240, size=1000) <= 63


def test_few_messages_are_dropped_by_the_rounds_of_each_minute(rig: Rig) -> None:
    """Early rounds would end the chunk that small commits share."""
    marked = flowing(rig).read("mark")
    flow(rig, 10, size=10)
    assert rig.read("mark") == marked


def test_a_message_is_never_dropped_before_its_time(rig: Rig) -> None:
    flowing(rig)
    flow(rig, 59, size=1000)
    assert chunks(rig) == 59


def test_early_rounds_come_the_less_often_the_more_topics_there_are(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "PAUSE_PER_TOPIC_MS", 150)
    flowing(rig)
    for name in numbered("u", 100):
        rig.topic(name)
    began, run = list[int](), retention.Retention.run

    def counted(self: retention.Retention, tx: object) -> bool:
        began.append(rig.now)
        return run(self, tx)  # type: ignore[arg-type]

    monkeypatch.setattr(retention.Retention, "run", counted)
    flow(rig, 60, size=1000)
    apart = [after - before for before, after in itertools.pairwise(began)]
    assert min(apart[1:]) >= 100 * 150
