"""Checksums of rows: one wrong bit is corrected, more are refused, and both are named by `popmq check`."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded.fsck.repair import repair_folder
from popmq_server.embedded.store.datafile import checksums
from popmq_server.embedded.store.keys import CQ_ENTRY, DATABASES, U64
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.store.store import Store, reading
from popmq_server.errors import StartError, UnreadableRow
from tests.engine.rig import DAY, MINUTE, Rig, bodies, numbered
from tests.stores import fill
from tests.stores.kept import put

#: Databases of which `fill` leaves no row behind.
NEVER_AT_REST = {"publish", "res", "sweep", "widx"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Group g has acked m0 to m4 and released m10 to m14; m5 to m9 are leased. All are in queue 0."""
    rig = Rig(tmp_path / "data")
    rig.pair(max_attempts=9)
    rig.send(*numbered("m", 30))
    rig.ack(rig.pop(10)[:5])
    rig.release(rig.pop(5))
    rig.core.close()
    return tmp_path / "data"


def flipped(raw: bytes, *bits: int) -> bytes:
    changed = bytearray(raw)
    for bit in bits:
        changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)


def as_stored(kv: Transaction) -> Transaction:
    """The same transaction; it neither verifies nor adds checksums."""
    return Transaction(kv._txn, kv._db, bare=frozenset(DATABASES))


def rot(folder: Path, name: str, change: Callable[[bytes, bytes], tuple[bytes, bytes]]) -> bytes:
    """Changes the first row of a database as a bad disk does; returns its key from before."""
    store = Store(folder, 1 << 28, "none")
    kv = as_stored(store.begin())
    key, stored = next(iter(kv.copies(name)))
    kv.delete(name, key)
    kv.put(name, *change(key, stored))
    kv.commit()
    store.close()
    return key


def still_delivered(folder: Path) -> list[str]:
    rig = Rig(folder)
    rig.advance(DAY)
    found = bodies(rig.pop(100))
    rig.core.close()
    return sorted(found)


UNFINISHED = sorted([*numbered("m", 30)][5:])


def test_every_row_of_a_store_has_its_checksum_and_is_read_as_it_was_written_after_one_flipped_bit(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path / "data")
    fill.aged(rig)
    fill.first(rig)
    fill.second(rig)
    fill.third(rig)
    fill.by_turns(rig)
    fill.removing(rig)
    rig.core.close()
    chance, met = random.Random(1), set[str]()
    store = Store(tmp_path / "data", 1 << 28, "none")
    with reading(store) as kv:
        for name in DATABASES:
            assert list(kv.broken(name)) == []
            for key, stored in as_stored(kv).copies(name):
                if checksums.is_bare(name, key):
                    continue
                met.add(name)
                value = stored[: -checksums.BYTES]
                wrong = flipped(stored, chance.randrange(8 * len(stored)))
                assert not checksums.is_whole(key, wrong)
                assert checksums.opened(name, key, memoryview(wrong)) == value
                other = flipped(key, chance.randrange(8 * len(key)))
                assert not checksums.is_whole(other, stored)
                assert checksums.corrected(other, stored) == (key, value)
    store.close()
    assert met == {*DATABASES} - checksums.BARE - NEVER_AT_REST


def test_every_single_bit_of_a_row_is_corrected_and_no_pair_of_bits_is_taken_for_one() -> None:
    key, value = b"12345678", b"of a lease"
    stored = checksums.with_checksum(key, value)
    bits = 8 * len(stored)
    for bit in range(bits):
        assert checksums.opened("ck", key, memoryview(flipped(stored, bit))) == value
        for other in range(bit):
            assert checksums.corrected(key, flipped(stored, bit, other)) is None


def test_a_lease_with_a_flipped_bit_keeps_its_messages(folder: Path) -> None:
    """The queue of its messages, of which no other row says anything."""
    rot(folder, "ck", lambda key, raw: (key, flipped(raw, 8 * 47)))
    (finding,) = check_folder(folder)
    assert "of table 'ck' does not match its checksum: one bit is wrong in its value" in finding
    assert still_delivered(folder) == UNFINISHED


def test_a_row_with_two_flipped_bits_stops_the_start_and_a_repair_says_what_is_lost(folder: Path) -> None:
    key = rot(folder, "ck", lambda key, raw: (key, flipped(raw, 8 * 47, 8 * 48)))
    with pytest.raises(StartError, match=rf"row {key.hex()} of table 'ck' .* checksum.*popmq check --repair"):
        Rig(folder)
    assert "more than one bit is wrong" in check_folder(folder)[0]
    said = repair_folder(folder).told
    assert f"dropped a row that does not match its checksum: {key.hex()} of 'ck'" in said
    assert any("group g in t: passed 15 messages, finished 5, holds 5" in sentence for sentence in said)
    assert still_delivered(folder) == sorted([*numbered("m", 30)][10:]), "the others of the group are there"


def test_a_repair_corrects_the_file(folder: Path) -> None:
    key = rot(folder, "ck", lambda key, raw: (key, flipped(raw, 3)))
    assert repair_folder(folder).told == [f"corrected one bit in a row: {key.hex()} of 'ck'"]
    assert check_folder(folder) == []
    assert still_delivered(folder) == UNFINISHED


def test_a_repair_corrects_a_key(folder: Path) -> None:
    """Of a retry entry. The row under the wrong key would be read by no one, or by another group."""
    key = rot(folder, "rq", lambda key, raw: (flipped(key, 8 * 15 + 6), raw))
    assert any(f"one bit is wrong in its key, {key.hex()}" in finding for finding in check_folder(folder))
    assert f"corrected one bit in the key: {key.hex()} of 'rq'" in repair_folder(folder).told
    assert check_folder(folder) == []
    assert still_delivered(folder) == UNFINISHED


@pytest.mark.parametrize("name", ["topic", "group", "stat", "poff", "cq", "due"])
def test_a_repair_keeps_a_row_that_many_messages_need_and_names_it(name: str, folder: Path) -> None:
    key = rot(folder, name, lambda key, raw: (key, raw[:-4] + flipped(raw[-4:], 1, 9)))
    said = repair_folder(folder).told
    assert f"a row does not match its checksum, and is kept; compare what it says: {key.hex()} of {name!r}" in said
    assert still_delivered(folder) == UNFINISHED


def test_a_lease_that_cannot_be_read_does_not_hold_up_the_others(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.pair()
    rig.send("a", "b")
    rig.pop(1)
    rig.pop(1)
    rig.core.close()
    rot(tmp_path, "due", lambda key, raw: (key, flipped(raw, 1, 9)))
    rig = Rig(tmp_path)
    rig.advance(2 * MINUTE)
    assert bodies(rig.pop()) == ["b"]
    assert set(rig.failures) == {"lease"}
    rig.core.close()


def test_an_entry_of_a_queue_that_points_at_another_message_is_not_delivered(folder: Path) -> None:
    """Both entries name whole records of the topic: only the checksum of the block shows that they are wrong."""

    def swap(key: bytes, raw: bytes) -> tuple[bytes, bytes]:
        at = CQ_ENTRY.size * 20
        return key, raw[:at] + raw[: CQ_ENTRY.size] + raw[at + CQ_ENTRY.size :]

    rot(folder, "cq", swap)
    store = Store(folder, 1 << 28, "none")
    with reading(store) as kv, pytest.raises(UnreadableRow, match="of table 'cq'"):
        kv.floor("cq", b"\xff")
    store.close()
    assert "of table 'cq' does not match its checksum" in check_folder(folder)[0]


def test_a_store_of_an_older_format_is_read_and_written_without_checksums(tmp_path: Path) -> None:
    put(tmp_path / "data", 3)
    rig = Rig(tmp_path / "data")
    rig.topic("new")
    with rig.reading() as kv:
        assert kv.bare == frozenset(DATABASES)
    assert all(len(value) == U64.size for _, value in rig.read("poff"))
    rig.core.close()
