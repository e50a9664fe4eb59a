"""The checker finds what is broken: a judge that never convicts proves nothing."""

import errno
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from popmq_server.embedded.fsck.check import check_folder, main
from popmq_server.embedded.fsck.compact import compact_folder
from popmq_server.embedded.fsck.repair import repair_folder
from popmq_server.embedded.store import keys
from popmq_server.embedded.store.datafile.layout import NUMBER
from popmq_server.embedded.store.folder import DATA_FILE, LMDB_LOCK_FILE, LOCK_FILE
from popmq_server.embedded.store.keys import (
    CQ_KEY,
    DUE_KEY,
    NEVER,
    POFF_KEY,
    RQ_KEY,
    STAT_KEY,
    SUB_OWNER,
    TOPIC_AT,
    U32,
    U64,
)
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.errors import StartError
from popmq_server.values.ids import TopicId
from popmq_server.values.message import RECORD
from tests.engine.rig import HOUR, Rig
from tests.engine.traffic.data_files import PAGE, database, first_leaf

#: What is spoilt here is a chunk or a block of several.
pytestmark = pytest.mark.usefixtures("a_chunk_a_commit")

Change = Callable[[Transaction], None]


@pytest.fixture
def lived(tmp_path: Path) -> Iterator[Rig]:
    """A store with leases, retries, owners and dead letters, which is not checked at the end of the test."""
    rig = Rig(tmp_path / "data")
    rig.topic(queues=2)
    rig.group(max_attempts=3)
    for text in "abcdefghij":
        rig.send(text)
    rig.attach(topic="t", lease_ms=HOUR)
    rig.seal(1, max_messages=2)
    rig.ack(rig.pop(2))
    rig.release(rig.pop(2), delay_ms=0)
    rig.reject(rig.pop(1, queues=(0,)))
    rig.pop(1, queues=(1,))
    assert rig.findings() == []
    yield rig
    rig.abandon()


def first(kv: Transaction, name: str) -> tuple[bytes, bytes]:
    found = kv.first(name)
    assert found is not None
    return found[0], bytes(found[1])


def lose(name: str) -> Change:
    """Deletes the first entry of a database."""

    def change(kv: Transaction) -> None:
        kv.delete(name, first(kv, name)[0])

    return change


def flip(name: str, place: int) -> Change:
    """A bit of the first value of a database is flipped."""

    def change(kv: Transaction) -> None:
        key, value = first(kv, name)
        raw = bytearray(value)
        raw[place] ^= 1
        kv.put(name, key, bytes(raw))

    return change


def count_wrong(kv: Transaction) -> None:
    key, value = first(kv, "stat")
    kv.put("stat", key, value[:8] + U64.pack(U64.unpack_from(value, 8)[0] + 1) + value[16:])


def go_beyond_the_end(kv: Transaction) -> None:
    key, _ = first(kv, "poff")
    kv.put("poff", key, U64.pack(1000))


def retry_twice(kv: Transaction) -> None:
    key, value = first(kv, "rq")
    group_id, topic_id, rseq = RQ_KEY.unpack(key)
    kv.put("rq", RQ_KEY.pack(group_id, topic_id, rseq + 1000), value)


def lease_twice(kv: Transaction) -> None:
    """A member of a batch is split off, and still in the batch."""
    for key, value in list(kv.scan("due")):
        due_ms, ck_id, sub = DUE_KEY.unpack(key)
        if sub == 0 and due_ms != NEVER:
            kv.put("due", DUE_KEY.pack(due_ms, ck_id, 1), bytes(value[:1]))
            return


def lose_the_owners_deadline(kv: Transaction) -> None:
    for key, _ in list(kv.scan("due")):
        if DUE_KEY.unpack(key)[2] == SUB_OWNER:
            kv.delete("due", key)


def lose_leases(kv: Transaction) -> None:
    for key, _ in list(kv.scan("due")):
        if DUE_KEY.unpack(key)[2] != SUB_OWNER:
            kv.delete("due", key)


def overlap(kv: Transaction) -> None:
    key, value = first(kv, "log")
    kv.put("log", U64.pack(U64.unpack(key)[0] + 1), value)


def store_later(kv: Transaction) -> None:
    """An index block says that its chunk was stored a second later than its messages were."""
    key, value = first(kv, "idx")
    kv.put("idx", key, U64.pack(U64.unpack_from(value)[0] + 1000) + bytes(value[8:]))


def double_a_block(kv: Transaction) -> None:
    """The first block is as long as two."""
    key, value = first(kv, "cq")
    kv.put("cq", key, value + value)


def pin_wrong(kv: Transaction) -> None:
    key, _ = first(kv, "pin")
    kv.put("pin", key, U32.pack(99))


def restart_numbers(kv: Transaction) -> None:
    raw = kv.get("meta", b"counters")
    assert raw is not None
    kv.put("meta", b"counters", U64.pack(0) + U64.pack(1) + bytes(raw[16:]))


@pytest.mark.mechanism("S2.16", "I.05", "I.20")
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (flip("log", 25), "does not match its checksum"),
        (flip("log", 7), "the chunk at"),
        (lose("log"), "no complete record"),
        (lose("idx"), "has no index block"),
        (overlap, "begins before its predecessor ends"),
        (store_later, "its index block has another time"),
        (lose("cq"), "its first readable offset is"),
        (double_a_block, "its predecessor ends at"),
        (lose("rq"), "retry entries, counted"),
        (retry_twice, "is in 2 places at once"),
        (count_wrong, "passed"),
        (go_beyond_the_end, "beyond its end"),
        (lose("ck"), "which is gone"),
        (lose_leases, "has no lease"),
        (lease_twice, "holds members that are not its own"),
        (lose("tok"), "has 0 tokens"),
        (lose("own"), "belongs to no owner"),
        (lose_the_owners_deadline, "has no key in the revive topic"),
        (pin_wrong, "pinned 99"),
        (restart_numbers, "was never assigned"),
        (restart_numbers, "the next position is 0"),
        (lose("stat"), "without counters of the group there"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_fsck_reports_each_kind_of_damage(lived: Rig, change: Change, sentence: str) -> None:
    lived.write(change)
    with lived.reading() as kv:
        from popmq_server.embedded.fsck.check import check

        told = list(check(kv))
    assert any(sentence in one for one in told), told


def test_a_sound_store_has_nothing_to_tell(lived: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    lived.core.close()
    assert check_folder(lived.folder) == []
    assert main([str(lived.folder)]) == 0
    assert "sound" in capsys.readouterr().out
    lived._start()


def test_a_broken_store_ends_with_one_and_a_missing_one_with_78(
    lived: Rig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lived.write(count_wrong)
    lived.core.close()
    assert main([str(lived.folder)]) == 1
    assert "1 broken invariant" in capsys.readouterr().out
    assert main([str(tmp_path / "nothing")]) == 78
    lived._start()


def test_a_store_in_use_is_not_checked(lived: Rig) -> None:
    with pytest.raises(StartError, match="in use"):
        check_folder(lived.folder)


def test_fsck_reports_memory_that_differs_from_the_store(lived: Rig) -> None:
    topic_id = lived.core.state.ids[("t", "t")]
    lived.core.state.queue_max.load((TopicId(topic_id), 0), 1000)
    assert any("queue_max" in one for one in lived.findings())
    lived.core.state.poff.load((*STAT_KEY.unpack(lived.read("stat")[0][0]), 0), 0)
    assert any("poff" in one for one in lived.findings())


def test_key_formats_shared_with_fsck_are_pinned() -> None:
    """The formats that both share are pinned here, so that a slip in one is not repeated by the other."""
    assert [format.size for format in (CQ_KEY, DUE_KEY, RQ_KEY, POFF_KEY, STAT_KEY, TOPIC_AT)] == [
        14,
        18,
        16,
        10,
        8,
        12,
    ]
    assert DUE_KEY.pack(1, 2, 3) == bytes.fromhex("0000000000000001 0000000000000002 0003")
    assert CQ_KEY.pack(1, 2, 3) == bytes.fromhex("00000001 0002 0000000000000003")


def test_fsck_reports_a_record_of_an_unknown_version_and_checks_the_records_after_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data")
    rig.pair()
    rig.send("newer", "damaged")

    def change(kv: Transaction) -> None:
        key, value = next(kv.scan("log"))
        raw = bytearray(value)
        raw[4] = 9  # the version
        length = RECORD.size + int.from_bytes(raw[5:8], "big")
        raw[:4] = zlib.crc32(raw[4:length]).to_bytes(4, "big")
        raw[-1] ^= 1
        kv.put("log", key, bytes(raw))

    rig.write(change)
    first, second = (one for one in rig.findings() if "quarantine" in one)
    assert "has version 9, which this release does not know" in first
    assert "does not match its checksum" in second
    rig.abandon()


@pytest.mark.parametrize("run", [check_folder, repair_folder, compact_folder])
def test_a_folder_that_is_not_accessible_is_a_start_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[[Path], object]
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(StartError, match="cannot be read: Permission denied"):
            run(tmp_path)
    with pytest.raises(StartError, match="cannot be read: File name too long"):
        run(tmp_path / ("x" * 300))


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A stopped store in a folder without locks, as a copy of it is."""
    rig = Rig(tmp_path / "data")
    rig.pair()
    rig.send("a", "b")
    rig.pop(1)
    rig.core.close()
    for name in (LOCK_FILE, LMDB_LOCK_FILE):
        (rig.folder / name).unlink()
    return rig.folder


def test_a_store_is_checked_without_a_change(stopped: Path) -> None:
    before = (stopped / DATA_FILE).read_bytes(), os.listdir(stopped)
    assert check_folder(stopped) == []
    assert ((stopped / DATA_FILE).read_bytes(), os.listdir(stopped)) == before


def test_a_check_of_a_folder_without_locks_finds_what_is_broken(stopped: Path) -> None:
    rig = Rig(stopped)
    rig.write(count_wrong)
    rig.abandon()
    assert any("finished" in sentence for sentence in check_folder(stopped))
    with open(stopped / DATA_FILE, "r+b") as file:
        page = first_leaf(file.fileno(), database(file.fileno(), b"cq")[0])
        file.seek(page.number * PAGE)
        file.write(NUMBER.pack(12345))
    assert any("is not a page of this tree" in sentence for sentence in check_folder(stopped))


def test_a_folder_is_not_checked_while_a_broker_has_it(stopped: Path) -> None:
    rig = Rig(stopped)
    with pytest.raises(StartError, match="in use"):
        check_folder(stopped)
    rig.core.close()


def test_a_table_that_a_store_lacks_is_checked_as_an_empty_one(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "DATABASES", (*keys.DATABASES, "later"))
    before = (stopped / DATA_FILE).read_bytes()
    assert check_folder(stopped) == []
    assert (stopped / DATA_FILE).read_bytes() == before
