"""`popmq check` finds what is wrong with the places of results, and a repaired store makes them again."""

from collections.abc import Callable
from pathlib import Path

import pytest

from popmq_server.embedded.fsck import compact, repair
from popmq_server.embedded.operations import ResultsPiece
from popmq_server.embedded.rules.results import places
from popmq_server.embedded.store.keys import U16
from popmq_server.embedded.store.lmdb import Transaction
from tests.engine.results.test_results import acking, leased
from tests.engine.rig import HOUR, Rig

IDS = [f"m{number}" for number in range(6)]


@pytest.fixture
def full(rig: Rig, monkeypatch: pytest.MonkeyPatch, a_chunk_a_commit: None) -> Rig:
    """One generation with six names in three parts or more; the tail is empty."""
    monkeypatch.setattr(places, "MOVE_NAMES", 6)
    monkeypatch.setattr(places, "FRESH_MIN", 1)
    rig.pair(results_keep_ms=HOUR)
    rig.do(acking(leased(rig, *IDS), *IDS))
    rig.advance(2000)
    assert len(rig.read("res")) > 3
    assert rig.findings() == []
    return rig


def part(rig: Rig) -> tuple[bytes, bytes]:
    return next((key, value) for key, value in rig.read("res") if key[-2:] != U16.pack(places.END))


def end(rig: Rig) -> tuple[bytes, bytes]:
    return rig.read("res")[-1]


Damage = Callable[[Rig, Transaction], object]


def _moved(rig: Rig, kv: Transaction) -> None:
    """A name that belongs to another part."""
    key, value = part(rig)
    kv.delete("res", key)
    kv.put("res", key[:-2] + U16.pack(511), value)


DAMAGES: dict[str, Damage] = {
    "names, counted": lambda rig, kv: kv.delete("res", part(rig)[0]),
    "have no end": lambda rig, kv: kv.delete("res", end(rig)[0]),
    "a name of another part": _moved,
    "lies outside": lambda rig, kv: kv.put("res", part(rig)[0], part(rig)[1][:8] + bytes(7) + b"\x01"),
    "is missing": lambda rig, kv: kv.put("res", part(rig)[0], bytes(8) + part(rig)[1][8:16]),
    "last entry is not its newest": lambda rig, kv: kv.put(
        "res", part(rig)[0], part(rig)[1][:16] + part(rig)[1][:8] + bytes(8)
    ),
    "no such topic": lambda rig, kv: kv.put("res", b"\0\0\1\0" + end(rig)[0][4:], places.REACH.pack(0, 0)),
}


@pytest.mark.parametrize("sentence", DAMAGES)
def test_what_is_wrong_is_found(full: Rig, sentence: str) -> None:
    before = full.read("res")

    def damage(kv: Transaction) -> None:
        DAMAGES[sentence](full, kv)

    full.write(damage)
    assert any(sentence in finding for finding in full.findings()), full.findings()
    full.write(lambda kv: _put_back(kv, before, [key for key, _ in full.read("res")]))


def _put_back(kv: Transaction, rows: list[tuple[bytes, bytes]], there: list[bytes]) -> None:
    for key in there:
        kv.delete("res", key)
    for key, value in rows:
        kv.put("res", key, value)


def found(rig: Rig) -> set[str]:
    return {row[2] for row in rig.look(ResultsPiece("g", tuple(IDS), 1 << 20)).rows}


def test_results_are_found_without_the_rows_and_the_job_makes_them_again(full: Rig) -> None:
    rows = full.read("res")
    full.write(lambda kv: _put_back(kv, [], [key for key, _ in rows]))
    full.restart()
    assert found(full) == {*IDS}
    full.advance(2 * 60_000)
    assert full.read("res") == rows


@pytest.mark.parametrize("rewritten", ["compacted", "repaired"])
def test_results_are_found_in_a_store_that_was_rewritten(full: Rig, rewritten: str) -> None:
    full.core.close()
    folder: Path = full.folder
    if rewritten == "compacted":
        assert compact.main([str(folder)]) == 0
    else:
        repair.repair_folder(folder)
    full._start()
    assert found(full) == {*IDS}
    assert bool(full.read("res")) == (rewritten == "compacted")
    full.advance(2 * 60_000)
    assert full.read("res")
    assert full.findings() == []
