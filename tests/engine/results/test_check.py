"""`popmq check` finds what is wrong with the places of results, and a repaired store makes them again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.fsck import compact, repair
from popmq_server.embedded.operations import ResultsPiece
from popmq_server.embedded.rules.results import places
from popmq_server.embedded.store.keys import U16
from popmq_server.embedded.store.lmdb import Transaction
from tests.engine.results.giving import acking, leased
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


Rows = list[tuple[bytes, bytes]]


def first_with(rows: Rows, key: bytes, value: bytes) -> Rows:
    """The rows, with another first part."""
    return [(key, value), *rows[1:]]


#: What is found → the rows of one generation, as they are damaged; the first is a part, the last its end.
DAMAGES: dict[str, Callable[[Rows], Rows]] = {
    "names, counted": lambda rows: rows[1:],
    "have no end": lambda rows: rows[:-1],
    "a name of another part": lambda rows: first_with(rows, rows[0][0][:-2] + U16.pack(511), rows[0][1]),
    "lies outside": lambda rows: first_with(rows, rows[0][0], rows[0][1][:8] + bytes(7) + b"\x01"),
    "is missing": lambda rows: first_with(rows, rows[0][0], bytes(8) + rows[0][1][8:16]),
    "last entry is not its newest": lambda rows: first_with(
        rows, rows[0][0], rows[0][1][:16] + rows[0][1][:8] + bytes(8)
    ),
    "no such topic": lambda rows: [*rows, (b"\0\0\1\0" + rows[-1][0][4:], places.REACH.pack(0, 0))],
}


def replace(rig: Rig, rows: Rows) -> None:
    """Puts these rows in place of all that are there."""
    there = [key for key, _ in rig.read("res")]

    def change(kv: Transaction) -> None:
        for key in there:
            kv.delete("res", key)
        for key, value in rows:
            kv.put("res", key, value)

    rig.write(change)


@pytest.mark.parametrize("sentence", DAMAGES)
def test_what_is_wrong_is_found(full: Rig, sentence: str) -> None:
    before = full.read("res")
    replace(full, DAMAGES[sentence](before))
    assert any(sentence in finding for finding in full.findings()), full.findings()
    replace(full, before)


def found(rig: Rig) -> set[str]:
    return {row[2] for row in rig.look(ResultsPiece("g", tuple(IDS), 1 << 20)).rows}


def test_results_are_found_without_the_rows_and_the_job_makes_them_again(full: Rig) -> None:
    rows = full.read("res")
    replace(full, [])
    full.restart()
    assert found(full) == {*IDS}
    full.advance(2 * 60_000)
    assert full.read("res") == rows


@pytest.mark.parametrize("command", [ask.DeleteTopic("%RESULT%g"), ask.PurgeTopic("%RESULT%g"), ask.DeleteGroup("g")])
def test_the_rows_go_with_their_topic(full: Rig, command: Any) -> None:
    full.do(command)
    full.settle()
    assert full.read("res") == []


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
