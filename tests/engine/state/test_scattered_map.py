"""Free pages that lie apart: a long value finds no adjacent ones. Its sender is refused; nobody else notices.

The map is really scattered: every second page of it is free, and the pages at its end are used.
"""

from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.delivery import owner
from popmq_server.embedded.rules.delivery.revive import Reviving
from popmq_server.embedded.state.jobs import JobFailed
from popmq_server.embedded.store.lmdb import MapFull
from popmq_server.embedded.writer import core, nearly_full
from popmq_server.embedded.writer.batch import Batch, Committed
from popmq_server.values.message import Extra
from tests.engine.rig import MINUTE, SECOND, Rig, bodies, message, refusal, refusals, sending
from tests.engine.state.conftest import LARGE, of

pytestmark = [pytest.mark.slow, pytest.mark.smoke]


def test_only_the_sender_of_the_large_message_is_refused(scattered: Rig) -> None:
    row = scattered.pop(1, "small")[0]
    asked = (
        of("large", LARGE, "x"),
        sending("d", topic="small"),
        of("keep", 3000, "y"),
        ask.Ack("g", (row.handle,)),
        ask.Pop("small", "g", max_messages=1),
        of("large", LARGE, "z"),
    )
    assert refusals(scattered.run(*asked)) == ["STORAGE_FULL", "", "", "", "", "STORAGE_FULL"]
    assert scattered.numbers("g", "small").acked == 1


def test_the_refusal_says_that_free_pages_lie_apart_and_what_helps(scattered: Rig) -> None:
    """Also of a delayed message, which is put at once and not at the end of the batch. A map without free pages is full
    and nothing else.
    """
    entry = message("x" * LARGE, "x")
    delayed = ask.Send("later", (entry._replace(extra=Extra(delay_ms=MINUTE)),), "", 0, len(entry.data))
    large = of("large", LARGE, "x")
    refused = [*scattered.run(large), *scattered.run(delayed), *scattered.run(*[large] * 40)]
    for each in refused:
        assert refusal(each) == "STORAGE_FULL"
        assert "the free pages lie apart" in each.message
        assert all(cure in each.action for cure in ("smaller messages", "popmq max-size", "popmq compact"))
    number = 0
    while not refusal(full := scattered.run(of("keep", 3500, f"f{number}"))[0]):
        number += 1
    assert "lie apart" not in full.message
    assert "% full" in full.message


def test_a_scattered_map_loses_no_messages_of_other_topics(scattered: Rig) -> None:
    before = {name: scattered.read(name) for name in ("log", "cq", "idx", "poff")}
    scattered.run(of("large", LARGE, "x"))
    assert {name: scattered.read(name) for name in ("log", "cq", "idx", "poff")} == before
    scattered.crash()
    assert {name: scattered.read(name) for name in ("log", "cq", "idx", "poff")} == before
    rows = scattered.pop(3, "small")
    assert bodies(rows) == ["a", "b", "c"]
    assert scattered.ack(rows) == [None] * 3


def test_many_large_messages_in_one_batch_cost_a_bounded_number_of_commits(
    scattered: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = list[int]()
    attempt = core.Core.attempt

    def counted(self: core.Core, group: Batch, order: list[int], *rest: object, **shut: bool) -> Committed:
        tried.append(len(order))
        return attempt(self, group, order, *rest, **shut)  # type: ignore[arg-type]

    monkeypatch.setattr(core.Core, "attempt", counted)
    asked = [of("large", LARGE, f"x{number}") for number in range(40)]
    assert refusals(scattered.run(*asked)) == ["STORAGE_FULL"] * 40
    assert len(tried) <= 4 * nearly_full.HALVINGS_MAX + 4


def lapsed(rig: Rig) -> set[str]:
    """Ends three leases whose dead letters need adjacent pages, and then one of messages that are tried again."""
    rig.group("once", max_attempts=1)
    rig.do(ask.ResetOffsets("large", "once", ("EARLIEST", 0)))
    letters = [row for _ in range(3) for row in rig.pop(1, "large", "once", invisible_ms=SECOND)]
    rig.pop(3, "small", invisible_ms=2 * SECOND)
    for _ in range(30):
        rig.advance(SECOND)
    return {letter.message_id for letter in letters}


def test_dead_letters_without_adjacent_pages_delay_no_other_lease_and_are_shown(scattered: Rig) -> None:
    lapsed(scattered)
    assert bodies(scattered.pop(3, "small", invisible_ms=SECOND)) == ["a", "b", "c"]
    waiting = scattered.numbers("once", "large")
    assert (waiting.in_flight, waiting.dead_blocked, waiting.dead) == (3, 3, 0)
    for _ in range(3):
        scattered.advance(SECOND)
    assert bodies(scattered.pop(3, "small")) == ["a", "b", "c"]


def test_a_piece_tries_one_of_many_dead_letters_without_adjacent_pages_a_second(
    scattered: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    lapsed(scattered)
    failures = list[int]()
    failed = Reviving.failed

    def counted(self: Reviving, failure: JobFailed, now_ms: int) -> None:
        failures.append(now_ms)
        failed(self, failure, now_ms)

    monkeypatch.setattr(Reviving, "failed", counted)
    for _ in range(10):
        scattered.advance(SECOND)
    assert len(failures) == len(set(failures)) == 10


def test_an_owner_s_lease_that_finds_no_page_is_tried_again_and_stops_no_later_piece(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.topic()
    rig.group()
    rig.send("a")
    rig.do(ask.AttachOwner("g", "o", SECOND, "t"))
    full = [True]
    lapse = owner.lapse

    def lapses(*given: Any) -> int:
        if full[0]:
            raise MapFull
        return lapse(*given)

    monkeypatch.setattr(owner, "lapse", lapses)
    for _ in range(20):
        rig.advance(SECOND)
    row = rig.pop(1, invisible_ms=SECOND)
    full[0] = False
    for _ in range(5):
        rig.advance(SECOND)
    assert bodies(rig.pop(1)) == bodies(row)


@pytest.mark.parametrize("again", [False, True], ids=["", "after a crash"])
def test_dead_letters_without_adjacent_pages_are_stored_within_seconds_of_a_deletion(
    scattered: Rig, again: bool
) -> None:
    waiting = lapsed(scattered)
    if again:
        scattered.crash()
    scattered.do(ask.DeleteTopic("keep"))
    for _ in range(5):
        scattered.advance(SECOND)
    assert {letter.message_id for letter in scattered.dead("once")} == waiting
    assert scattered.numbers("once", "large").dead_blocked == 0


def test_the_store_heals_when_something_is_deleted(scattered: Rig) -> None:
    scattered.do(ask.DeleteTopic("keep"))
    for _ in range(20):
        scattered.advance(SECOND // 10)
    assert refusal(scattered.run(of("large", LARGE, "x"))[0]) == ""
    assert bodies(scattered.pop(3, "small")) == ["a", "b", "c"]
