"""Walks of housekeeping through tables of which some rows cannot be read."""

from pathlib import Path

import pytest

from popmq_server.embedded.rules.sending import dedup, stages
from popmq_server.embedded.rules.sending.dedup import DEDUP_KEEP_MS
from popmq_server.embedded.rules.topics import walks
from popmq_server.embedded.rules.topics.walks import RowWalk
from popmq_server.embedded.store.keys import DATABASES
from popmq_server.embedded.store.lmdb import Transaction
from tests.engine.rig import DAY, MINUTE, Rig
from tests.engine.stages import commit, stage


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Its walks look at two rows in a piece."""
    monkeypatch.setattr(stages, "TIDY_ROWS", 2)
    monkeypatch.setattr(dedup, "DEDUP_SWEEP", 2)
    made = Rig(tmp_path / "data")
    made.topic()
    return made


def spoil(rig: Rig, name: str, *places: int, raw: bytes | None = None) -> list[bytes]:
    """Flips bits in some rows of a table, or gives them the value `raw`; the keys of these rows."""
    keys = [key for key, _ in rig.read(name)]

    def change(kv: Transaction) -> None:
        bare = Transaction(kv._txn, kv._db, bare=frozenset(DATABASES))
        for place in places:
            if raw is None:
                stored = bytearray(bare.get(name, keys[place]) or b"")
                stored[0] ^= 0x55
                bare.put(name, keys[place], bytes(stored))
            else:
                kv.put(name, keys[place], raw)

    rig.write(change)
    return [keys[place] for place in places]


def left(rig: Rig, name: str) -> list[bytes]:
    with rig.reading() as kv:
        return list(kv.scan_keys(name))


@pytest.mark.parametrize("places", [(0,), (1,), (2, 3), (4,), (0, 1, 2)])
@pytest.mark.parametrize("raw", [None, b"\0"])
def test_old_request_numbers_after_one_that_cannot_be_read_are_forgotten(
    rig: Rig, caplog: pytest.LogCaptureFixture, places: tuple[int, ...], raw: bytes | None
) -> None:
    for number in range(1, 6):
        rig.send("a", producer=f"p{number}", number=number)
    spoiled = spoil(rig, "dedup", *places, raw=raw)
    rig.advance(DEDUP_KEEP_MS + MINUTE)
    rig.advance(MINUTE)
    assert left(rig, "dedup") == spoiled
    rig.advance(MINUTE)
    said = [record.message for record in caplog.records if "'dedup' cannot be read" in record.message]
    assert [key.hex() in one for key, one in zip(spoiled, said, strict=True)] == [True] * len(places), "each once"


def test_old_stages_and_sinks_after_rows_that_cannot_be_read_are_dropped(rig: Rig) -> None:
    for number in range(5):
        stage(rig, f"{number}", "x")
        commit(rig, batch=1, sink=f"sink-{number}")
    spoiled = {name: spoil(rig, name, 1) for name in ("staged", "batch")}
    rig.advance(100 * DAY)
    rig.advance(MINUTE)
    assert {name: left(rig, name) for name in spoiled} == spoiled


def test_a_piece_over_rows_that_cannot_be_read_is_bounded_too(
    rig: Rig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walks, "_TOLD_MAX", 4)
    for number in range(1, 10):
        rig.send("a", producer=f"p{number}", number=number)
    spoil(rig, "dedup", *range(9))
    walk, places = RowWalk("dedup", 2, bytes), list[bytes]()
    tx = rig.core._begin()
    for _ in range(5):
        assert walk.piece(tx) == []
        places.append(walk.place)
    tx.abort()
    assert walk.place == b""
    assert places == [*(key + b"\0" for key in left(rig, "dedup")[1::2]), b""]
    assert len(caplog.records) == 4
