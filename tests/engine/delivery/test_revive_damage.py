"""Damage of `due` while the broker runs: it is reported, mended or passed over, and all other leases end in time."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.state import jobs
from popmq_server.embedded.store.folder import DATA_FILE
from popmq_server.embedded.store.lmdb import Transaction
from tests.engine.rig import HOUR, MINUTE, SECOND, Rig, bodies, numbered


@pytest.fixture
def unjudged(tmp_path: Path) -> Iterator[Rig]:
    """A rig that is not judged at its end: fsck finds the damage."""
    made = Rig(tmp_path / "damaged")
    yield made
    made.abandon()


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "popmq")


@pytest.fixture(autouse=True)
def kept_times_are_true() -> None:
    """Not here: what damages a key tells nobody, so a commit meets it when the lease is due."""


def leased(rig: Rig, *seconds: int) -> None:
    """A message under a lease of its own for each of these times."""
    rig.pair()
    rig.send(*numbered("m", len(seconds)))
    for each in seconds:
        rig.pop(1, invisible_ms=each * SECOND)


def flip(rig: Rig, key: bytes, byte: int, bit: int) -> None:
    """Flips a bit of a key in the pages of the data file, as a failing disk does: the key stays where it is."""
    file = rig.folder / DATA_FILE
    whole = bytearray(file.read_bytes())
    place = whole.find(key)
    assert place >= 0
    with open(file, "r+b") as opened:
        while place >= 0:
            opened.seek(place + byte)
            opened.write(bytes((whole[place + byte] ^ 1 << bit,)))
            place = whole.find(key, place + 1)


def first_key(rig: Rig) -> bytes:
    return rig.read("due")[0][0]


#: The bit of a deadline (8 bytes) that is flipped: sooner or later by minutes, by years, for ever.
BITS = {"minutes": (5, 4), "years": (3, 5), "more years": (3, 6), "for ever": (0, 7)}


def test_a_deadline_in_years_is_reported_at_a_start_found_by_fsck_and_ended_by_an_operator(
    unjudged: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Damage while the broker is stopped: the start reads it as it is, and the messages would stay leased for years."""
    leased(unjudged, 30, 12 * 3600)
    key = unjudged.read("due")[-1][0]
    ck_id = int.from_bytes(key[8:16], "big")
    assert unjudged.findings() == [], "half a day is the longest that may be asked for"
    unjudged.abandon()
    flip(unjudged, key, *BITS["years"])
    caplog.set_level(logging.WARNING, "popmq")
    unjudged._start()
    assert f"lease {ck_id} ends in more than a day, which no lease does" in caplog.text
    assert [finding for finding in unjudged.findings() if f"CheckPoint {ck_id}: part 0 has the deadline" in finding]
    assert unjudged.do(ask.EndLease("g", str(ck_id))) == 1
    assert unjudged.findings() == []
    unjudged.advance(HOUR)
    assert sorted(bodies(unjudged.pop())) == ["m0", "m1"]


@pytest.mark.parametrize("which", BITS)
def test_a_flipped_bit_in_a_deadline_delays_no_lease(rig: Rig, caplog: pytest.LogCaptureFixture, which: str) -> None:
    leased(rig, 10, 20, 30)
    rig.skip(5 * SECOND)
    flip(rig, first_key(rig), *BITS[which])
    caplog.set_level(logging.WARNING, "popmq.events")
    rig.send("more")
    for ended in (1, 2, 3):
        rig.advance(5 * SECOND if ended == 1 else 10 * SECOND)
        assert (rig.numbers().retry, rig.numbers().in_flight) == (ended, 3 - ended)
    assert rig.failures == []
    assert [record.name for record in caplog.records] == ["popmq.events"]
    assert "popmq check" in caplog.text


def test_an_entry_of_no_lease_is_reported_each_minute_and_holds_up_no_lease(
    unjudged: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """A bit of its CheckPoint's id has flipped. Before, the job ran in each commit and did nothing."""
    rig = unjudged
    leased(rig, 10, 20)
    flip(rig, first_key(rig), 12, 3)
    rig.send("more")
    caplog.set_level(logging.ERROR, "popmq")
    rig.advance(20 * SECOND)
    assert rig.numbers().retry == 1
    rig.advance(20 * SECOND)
    for _ in range(4):
        assert not rig.due
        rig.advance(jobs.POSTPONE_MS)
    assert rig.failures == 5 * ["lease"]
    assert len([record for record in caplog.records if record.exc_info]) == 5
    assert "popmq check" in caplog.text


def test_a_lease_that_cannot_be_read_holds_up_no_other(unjudged: Rig) -> None:
    rig = unjudged
    leased(rig, 10, 20, 30)
    rig.restart()

    def cut(kv: Transaction) -> None:
        key, value = next(kv.scan("ck"))
        kv.put("ck", key, bytes(value)[: len(value) // 2])

    rig.write(cut)
    rig.advance(25 * SECOND)
    assert len(rig.read("rq")) == 1
    rig.advance(10 * SECOND)
    assert len(rig.read("rq")) == 2
    assert rig.failures == ["lease"]
    assert not rig.due


def test_an_ack_and_a_renewal_in_one_commit_batch_are_not_taken_for_damage(rig: Rig) -> None:
    leased(rig, 10, 20)
    rig.send("a", "b")
    first, second = rig.pop(1, invisible_ms=10 * SECOND), rig.pop(1, invisible_ms=10 * SECOND)
    rig.skip(10 * SECOND)
    extend = tuple(ask.Change(row.handle, "extend", delay_ms=HOUR) for row in second)
    events = rig.commit(ask.Ack("g", tuple(row.handle for row in first)), ask.ChangeInvisibleTime("g", extend)).events
    rig.settle()
    rig.advance(MINUTE)
    assert (rig.failures, list(events)) == ([], [])
    assert bodies(rig.pop()) == ["m0", "m1"]
