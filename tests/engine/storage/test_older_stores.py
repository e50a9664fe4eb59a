"""A store that an earlier release wrote is opened by this one: what was in it is read, acked, redriven and checked.

tests/stores has a store of each format, written by the last release of that format; fill.py there says what is in them.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.embedded import operations
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded.fsck.compact import compact_folder
from popmq_server.embedded.fsck.repair import repair_folder
from popmq_server.embedded.store.formats import CHECKSUMS_FROM, FORMATS
from popmq_server.embedded.store.keys import DATABASES, U32
from popmq_server.values.leased import Leased
from tests.engine.dead_letters import all_again
from tests.engine.lives import why
from tests.engine.pull_steps import committed, finish, pull, texts
from tests.engine.rig import HOUR, MINUTE, Rig, bodies, message, numbered
from tests.engine.traffic.traffic_timing import delayed, ending, halves
from tests.stores.kept import KEPT, put

SINCE_2 = [number for number in KEPT if number >= 2]
#: What a store cannot show at rest: room for later work, what lasts for a moment, and what needs thousands of messages.
NEVER_AT_REST = {"publish", "res", "sweep", "widx"}
#: Databases that formats up to the newest kept one did not have.
LATER = {"staged", "stage", "batch", "lidx", "cron", "cronmsg", "taken"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def rig(folder: Path, request: pytest.FixtureRequest) -> Iterator[Rig]:
    """A broker on a copy of the store of a format; it is sound at the beginning and at the end."""
    put(folder, request.param)
    rig = Rig(folder)
    assert rig.findings() == []
    yield rig
    assert rig.findings() == []
    rig.core.close()
    assert check_folder(folder) == []


every_format = pytest.mark.parametrize("rig", KEPT, indirect=True, ids="format-{}".format)
since_2 = pytest.mark.parametrize("rig", SINCE_2, indirect=True, ids="format-{}".format)


def drain(rig: Rig, topic: str, group: str, hours: int = 24) -> list[str]:
    """Everything that the group gets in a day, acked as it comes."""
    found: list[str] = []
    for _ in range(hours):
        while rows := rig.pop(32, topic, group, invisible_ms=MINUTE):
            found += bodies(rows)
            assert rig.ack(rows, group) == [None] * len(rows)
        rig.advance(HOUR)
    return sorted(found)


def test_a_store_of_every_format_before_this_one_is_kept() -> None:
    assert {known.number for known in FORMATS[:-1]} <= set(KEPT)


def test_the_store_of_the_newest_kept_format_has_something_in_every_database(folder: Path) -> None:
    put(folder, max(KEPT))
    rig = Rig(folder)
    assert {name for name in DATABASES if not rig.read(name)} <= NEVER_AT_REST | LATER
    rig.core.close()


@every_format
def test_an_older_store_has_the_last_format_without_checksums_once_it_was_opened(rig: Rig) -> None:
    assert dict(rig.read("meta"))[b"format"] == U32.pack(CHECKSUMS_FROM - 1)


@every_format
def test_a_repair_of_an_older_store_gives_it_the_newest_format_and_keeps_its_rows(rig: Rig) -> None:
    before = {name: rig.read(name) for name in DATABASES if name not in ("meta", "lidx")}
    rig.core.close()
    assert repair_folder(rig.folder).told == []
    rig._start()
    assert dict(rig.read("meta"))[b"format"] == U32.pack(FORMATS[-1].number)
    assert {name: rig.read(name) for name in before} == before


@every_format
def test_a_second_start_and_a_compacted_copy_hold_the_same(rig: Rig) -> None:
    before = {name: rig.read(name) for name in DATABASES}
    rig.restart()
    assert {name: rig.read(name) for name in DATABASES} == before
    rig.core.close()
    compact_folder(rig.folder)
    rig._start()
    assert {name: rig.read(name) for name in DATABASES} == before


@pytest.mark.slow
@every_format
def test_unfinished_messages_of_an_older_store_come_again_and_acked_ones_do_not(rig: Rig) -> None:
    redriven = ["a5"] if rig.dead("billing") == [] else []
    held = ["held"] if redriven else []
    all_of = sorted([*numbered("b", 4), "once", *held])
    assert drain(rig, "orders", "billing") == sorted(["a2", "a3", "a4", *redriven, *all_of])
    assert drain(rig, "orders", "audit") == sorted([*numbered("a", 6), *all_of])
    assert drain(rig, "orders", "late") == held
    assert drain(rig, "bad", "careful") == ["d2"]
    assert drain(rig, "logs", "reader") == ["l4"], "its chunk went before the release that wrote it ended"


@pytest.mark.slow
@every_format
def test_messages_sent_under_this_release_follow_those_of_the_older_store(rig: Rig) -> None:
    rig.send("new", topic="events")
    assert drain(rig, "events", "lake", 40) == sorted([*numbered("e", 6), "new"])
    rig.restart()
    assert drain(rig, "events", "lake") == []


@every_format
def test_a_lease_goes_on_and_the_same_attempt_gets_the_same_messages(rig: Rig) -> None:
    asked = {"client_id": "c2", "attempt_id": "try", "invisible_ms": HOUR}
    rows = rig.pop(2, "orders", "billing", **asked)
    assert [row.attempt for row in rows] == [1, 1]
    assert all(body.startswith("b") for body in bodies(rows))
    assert rig.pop(2, "orders", "billing", **asked) == rows
    assert rig.ack(rows, "billing") == [None, None]
    assert not {*bodies(rows)} & {*drain(rig, "orders", "billing")}


@every_format
def test_a_sealed_set_is_read_again_and_acked_by_its_epoch(rig: Rig) -> None:
    def seal(owner: str, generation: int) -> Leased:
        return rig.seal(1, owner=owner, generation=generation, group="lake", topic="events", max_messages=2)

    assert rig.attach("spark", HOUR, "lake") == 2
    bound = [row[0] for row in seal("spark", 2).rows]
    rig.attach("gone", HOUR, "lake")
    taken_back = [row[0] for row in seal("gone", 2).rows]
    assert (len(bound), len(taken_back), len({*bound, *taken_back})) == (2, 2, 4)
    assert rig.ack_up_to(1, "spark", 2, "lake") == rig.ack_up_to(1, "gone", 2, "lake") == 2
    assert len(drain(rig, "events", "lake")) == 2


@pytest.mark.parametrize("rig", [1], indirect=True)
def test_a_dead_letter_tells_why_and_is_redriven(rig: Rig) -> None:
    (letter,) = rig.dead("billing")
    assert (letter.message_id, letter.body, list(letter.keys)) == ("id-a5", b"a5", ["key-1"])
    assert (letter.dead_letter.reason, letter.dead_letter.attempts) == ("no such customer", 1)
    assert all_again(rig, group="billing") == []
    assert "a5" in drain(rig, "orders", "billing")


@pytest.mark.slow
@every_format
def test_a_repeated_request_is_answered_as_it_was(rig: Rig) -> None:
    again = ask.Send("orders", (message("once"),), "p", 7)
    sent = rig.do(again)
    assert sent.duplicate
    assert [row[0] for row in rig.browse("orders", sent.queue, sent.first, 1).rows] == [message("once").data]


@pytest.mark.slow
@every_format
def test_messages_are_found_by_id_and_by_key_and_tell_their_life(rig: Rig) -> None:
    found = rig.do(operations.LookUpPiece("orders", "", "key-1", 10, 1 << 20)).rows
    assert len(found) == 3
    (life,) = [one for one in why(rig, "id-a0") if one.topic == "orders"]
    told = {group.group: group.state for group in life.groups}
    assert told["billing"] == "acked"


@pytest.mark.slow
@every_format
def test_a_damaged_message_stays_set_aside(rig: Rig) -> None:
    assert rig.numbers("careful", "bad").quarantined == 1
    rig.restart()
    assert drain(rig, "bad", "careful") == ["d2"]


@every_format
def test_a_topic_that_was_being_removed_goes(rig: Rig) -> None:
    assert rig.read("purge")
    rig.advance(MINUTE)
    assert rig.read("purge") == []


# ── What format 2 added ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@since_2
def test_message_groups_keep_their_order_and_stay_stopped(rig: Rig) -> None:
    assert rig.numbers("strict", "accounts").stopped == 1
    assert rig.pop(32, "accounts", "ledger") == [], "a1 is leased, and a2 waits behind it"
    rig.advance(20 * HOUR)
    assert bodies(rig.pop(32, "accounts", "ledger")) == ["a1", "a2"]


@pytest.mark.slow
@since_2
def test_delayed_messages_fire_at_their_time(rig: Rig) -> None:
    assert sorted(delayed(rig, "mail")) == ["at a time", "in an hour"]
    rig.advance(HOUR)
    rows = rig.pop(5, "mail", "post")
    assert bodies(rows) == ["in an hour"]
    rig.ack(rows, "post")
    rig.advance(HOUR)
    assert bodies(rig.pop(5, "mail", "post")) == ["at a time"]


@since_2
def test_an_open_transaction_is_committed(rig: Rig) -> None:
    assert halves(rig, "payments") == ["p2"]
    (open_one,) = rig.look(queries.Transactions("payments", 10))[0]
    assert rig.do(ending([ask.Place(transaction_id=open_one.transaction_id)], True))
    assert drain(rig, "payments", "bank") == ["p0", "p2"]


@since_2
def test_filters_offsets_and_ids_are_kept(rig: Rig) -> None:
    assert rig.do(ask.Send("single", (message("s1"),))).places[0].duplicate
    assert drain(rig, "orders", "even") == ["a0", "a2", "a4"]
    assert committed(rig, "events", "puller") == [1, 1]
    assert len(texts(pull(rig, 1, topic="events", group="puller"))) == 2
    assert len(texts(pull(rig, topic="%RETRY%switched+events", group="switched"))) == 2
    rig.group("all")
    assert bodies(rig.pop(2, "urgent", "all")) == ["high", "low"]


@since_2
def test_a_switch_back_to_pop_delivers_messages_that_were_sent_back(rig: Rig) -> None:
    _, left = rig.do(ask.SetConsumeMode("events", "puller", "POP"))
    finish(rig, left, "events", "puller")
    assert len(drain(rig, "events", "puller")) == 5


@pytest.mark.slow
@pytest.mark.parametrize("rig", [2], indirect=True)
def test_the_chunks_of_lite_topics_are_indexed_in_the_background(rig: Rig) -> None:
    assert b"lite_index" not in dict(rig.read("meta"))
    rig.settle()
    assert dict(rig.read("meta"))[b"lite_index"] == b""
    assert rig.read("lidx")


@since_2
def test_lite_topics_keep_their_messages(rig: Rig) -> None:
    def pop(name: str) -> list[str]:
        answer = rig.do(ask.Pop("chat", "g", lite=(name,), invisible_ms=MINUTE))
        return [row[0] for part in answer.leases for row in part.rows]

    assert (len(pop("ann")), len(pop("bob"))) == (0, 1), "ann:1 is leased"
    rig.advance(20 * HOUR)
    assert len(pop("ann")) == 2


@pytest.mark.slow
@since_2
def test_a_lease_that_lives_with_its_client_is_back_when_the_client_is_silent(rig: Rig) -> None:
    before = rig.numbers("audit", "orders")
    assert (before.ready, before.in_flight) == (11, 1)
    rig.advance(2 * MINUTE)
    assert rig.numbers("audit", "orders").retry == 1
