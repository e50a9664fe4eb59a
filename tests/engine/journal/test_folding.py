"""Commit batches that are in the journal only: what reads see, and what a start makes of them after a crash."""

import itertools
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded.fsck.compact import compact_folder
from popmq_server.embedded.operations import Fold
from popmq_server.embedded.store import keys
from popmq_server.embedded.store.folder import DATA_FILE, JOURNAL_FILE
from popmq_server.embedded.store.formats import FORMAT, JOURNALED
from popmq_server.embedded.store.journal import file as journal
from popmq_server.embedded.store.journal import folding
from popmq_server.embedded.store.lmdb import DiskFault, MapFull, Transaction, meta_row
from popmq_server.embedded.store.store import Store, reading
from popmq_server.errors import CommitFailed, StartError
from popmq_server.options import MAX_SIZE_MIN
from tests.engine.faults import Fault, Killed, failing
from tests.engine.rig import SECOND, Journaled, Rig, bodies, message, refusals, sending
from tests.engine.traffic.traffic import Traffic

MakeJournaled = Callable[..., Journaled]
#: All rows of a store, by database and key.
Rows = dict[tuple[str, bytes], bytes]


@pytest.fixture
def make_journaled(tmp_path: Path) -> Iterator[MakeJournaled]:
    """Makes rigs by name; at the end each of them is checked by fsck and against a new start."""
    rigs: list[Journaled] = []

    def make(name: str = "data", **how: Any) -> Journaled:
        rigs.append(Journaled(tmp_path / name, **how))
        return rigs[-1]

    yield make
    for rig in rigs:
        broken = rig.findings()
        rig.abandon()
        assert broken == []


@pytest.fixture
def rig(make_journaled: MakeJournaled) -> Journaled:
    """A broker with a topic and a group, whose first batch is folded: it has the mark of the journal."""
    rig = make_journaled()
    rig.pair()
    rig.store.fold()
    return rig


def content(folder: Path) -> bytes:
    return (folder / DATA_FILE).read_bytes()


def rows_of(kv: Transaction) -> Rows:
    """All rows but those of a life: the format number and the identity of a journal."""
    rows = {(name, bytes(key)): bytes(value) for name in keys.DATABASES for key, value in kv.scan(name)}
    return {row: value for row, value in rows.items() if row[1] not in (folding.FORMAT_ROW, folding.IDENTITY_ROW)}


def unfolded_rows(rig: Rig) -> Rows:
    """All rows as commit batches see them."""
    kv = rig.store.begin_batch()
    try:
        return rows_of(kv)
    finally:
        kv.abort()


def copied(rig: Rig, name: str, length: int | None = None) -> Path:
    """The files of a running broker as a kill leaves them; of the journal the first bytes, if it is cut."""
    folder = rig.folder.parent / name
    folder.mkdir()
    for file in (DATA_FILE, JOURNAL_FILE):
        (folder / file).write_bytes((rig.folder / file).read_bytes())
    if length is not None:
        os.truncate(folder / JOURNAL_FILE, length)
    return folder


def started_rows(folder: Path) -> Rows:
    """All rows after a start."""
    store = Store(folder, 1 << 28, "none")
    try:
        with reading(store) as kv:
            return rows_of(kv)
    finally:
        store.close()
        shutil.rmtree(folder)


# ── What is written, and when ────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_is_in_the_journal_and_a_fold_puts_it_into_the_data_file(rig: Journaled) -> None:
    before = content(rig.folder)
    rig.send("a")
    assert rig.store.unfolded
    assert content(rig.folder) == before
    assert b"PMQJ" in (rig.folder / JOURNAL_FILE).read_bytes()
    rig.store.fold()
    assert not rig.store.unfolded
    assert content(rig.folder) != before


def test_a_batch_is_folded_a_second_after_it(rig: Journaled) -> None:
    rig.send("a")
    first = rig.now
    rig.skip(900)
    rig.send("b")
    assert rig.core.folds.sooner(None) == first + SECOND
    rig.skip(100)
    rig.commit()
    assert not rig.store.unfolded


def test_a_large_batch_is_folded_at_once_with_all_before_it(rig: Journaled) -> None:
    rig.send("a")
    rig.send(*("x" * 50_000 for _ in range(5)))
    assert not rig.store.unfolded


def test_a_journal_that_is_full_is_folded(rig: Journaled) -> None:
    folds = 0
    for number in range(60):
        rig.run(one_of(number, 100_000))
        folds += not rig.store.unfolded
    assert folds in (1, 2)


def test_a_lone_send_adds_its_own_bytes_to_the_journal_and_not_its_whole_chunk(rig: Journaled) -> None:
    sizes = []
    for number in range(16):
        before = journal_bytes(rig)
        rig.run(one_of(number, 1024))
        sizes.append(journal_bytes(rig) - before)
    assert max(sizes[1:]) < 1900


def one_of(number: int, size: int) -> ask.Send:
    """A send of one message with a short id."""
    return ask.Send("t", (message("x" * size, f"{number}"),), "", 0, size)


def journal_bytes(rig: Rig) -> int:
    assert rig.store.folding is not None
    assert rig.store.folding.journal is not None
    return rig.store.folding.journal.bytes


def test_a_store_with_little_room_writes_no_journal(make_journaled: MakeJournaled) -> None:
    rig = make_journaled(map_bytes=MAX_SIZE_MIN)
    rig.pair()
    assert rig.store.folding is not None
    assert rig.store.folding.room
    number = 0
    while rig.store.folding.room:
        number += 1
        rig.run(one_of(number, 60_000))
        assert number < 300
    used = rig.store.pages_reached / rig.store.map_pages
    assert 0.1 < used < 0.8
    for again in range(3):
        rig.send(f"again {again}")
        assert not rig.store.unfolded


# ── What reads see ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_read_transaction_of_the_writer_sees_what_was_answered(rig: Journaled) -> None:
    rig.send("a")
    assert len(rig.read("log")) == 1
    assert not rig.store.unfolded


def test_whoever_reads_elsewhere_asks_for_a_fold_first(rig: Journaled) -> None:
    rig.send("a")
    rig.do(Fold())
    assert not rig.store.unfolded


def test_the_limit_of_the_data_file_is_moved_after_a_fold(rig: Journaled) -> None:
    rig.send("a")
    rig.do(ask.SetMaxSize(1 << 29))
    assert not rig.store.unfolded
    assert rig.store.map_bytes == 1 << 29


def test_a_check_after_a_crash_sees_the_journal_and_changes_no_file(
    rig: Journaled, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.send("a", "b")
    rig.ack(rig.pop(1))
    folder = copied(rig, "killed")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert check_folder(folder) == []
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert after == before
    monkeypatch.setattr("os.access", lambda *_: False)  # as in a snapshot that is mounted read-only
    with pytest.raises(StartError, match=f"copy {folder}, and check the copy"):
        check_folder(folder)


def test_a_compaction_after_a_crash_keeps_what_the_journal_has(rig: Journaled) -> None:
    rig.send("a", "b")
    expected = unfolded_rows(rig)
    folder = copied(rig, "killed")
    compact_folder(folder)
    assert started_rows(folder) == expected


# ── Crashes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_start_makes_exactly_the_batches_whose_records_are_whole(rig: Journaled, seed: int) -> None:
    traffic, chance = Traffic(seed), random.Random(seed)
    rig.run(*traffic.first())
    rig.store.fold()
    states = [(0, unfolded_rows(rig))]
    while len(states) < 40:
        commands = traffic.group()
        traffic.learn(commands, rig.run(*commands))
        if not rig.store.unfolded:
            states = [(0, unfolded_rows(rig))]
        elif journal_bytes(rig) > states[-1][0]:
            states.append((journal_bytes(rig), unfolded_rows(rig)))
    for number, ((end, rows), (later, _)) in enumerate(itertools.pairwise(states)):
        for cut in (end, chance.randrange(end, later)):
            assert started_rows(copied(rig, f"cut-{number}", cut)) == rows


def test_what_was_answered_survives_a_crash(rig: Journaled) -> None:
    rig.send("a", "b", "c")
    rows = rig.pop(2)
    rig.ack(rows[:1])
    rig.crash()
    assert bodies(rig.pop()) == ["c"]
    rig.release(rows[1:])
    rig.crash()
    assert bodies(rig.pop()) == ["b"]


def test_a_crash_after_a_fold_makes_nothing_twice(rig: Journaled) -> None:
    rig.send("a")
    before = (rig.folder / JOURNAL_FILE).read_bytes()
    rig.store.fold()
    expected = unfolded_rows(rig)
    folder = copied(rig, "killed")
    assert (folder / JOURNAL_FILE).read_bytes() == before
    assert started_rows(folder) == expected


def test_a_start_that_is_killed_before_it_empties_the_journal_makes_nothing_twice(
    rig: Journaled, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.send("a")
    expected = unfolded_rows(rig)
    folder = copied(rig, "killed")
    with monkeypatch.context() as patched:
        patched.setattr(journal, "empty", interrupted)
        with pytest.raises(Killed):
            Store(folder, 1 << 28, "none")
    assert (folder / JOURNAL_FILE).stat().st_size
    assert started_rows(folder) == expected


def interrupted(_: Path) -> None:
    raise Killed


def test_a_damaged_journal_stops_the_start_and_nothing_is_changed(rig: Journaled) -> None:
    rig.send("a")
    end = journal_bytes(rig)
    rig.send("b")
    folder = copied(rig, "damaged")
    with open(folder / JOURNAL_FILE, "r+b") as file:
        file.seek(end // 2)
        byte = file.read(1)[0]
        file.seek(end // 2)
        file.write(bytes([byte ^ 1]))
    before = content(folder)
    with pytest.raises(StartError, match=r"damaged: the changes of 0 commit batches .* `popmq check --repair"):
        Store(folder, 1 << 28, "none")
    with pytest.raises(StartError, match="damaged"):
        check_folder(folder)
    assert content(folder) == before


def test_a_store_restored_beside_the_journal_of_another_is_refused_until_it_is_moved_away(
    rig: Journaled, make_journaled: MakeJournaled
) -> None:
    with open(rig.folder.parent / "backup", "wb") as backup:
        rig.store.fold()
        rig.store.copy(backup.fileno())
    expected = unfolded_rows(rig)
    rig.send("after the backup")
    folder = copied(rig, "restored")
    shutil.copy(rig.folder.parent / "backup", folder / DATA_FILE)
    with pytest.raises(StartError, match=r"move popmq\.journal away"):
        Store(folder, 1 << 28, "none")
    (folder / JOURNAL_FILE).unlink()
    assert started_rows(folder) == expected


def test_a_journal_without_its_store_is_not_taken_for_that_of_a_new_one(rig: Journaled) -> None:
    rig.send("a")
    folder = copied(rig, "alone")
    (folder / DATA_FILE).unlink()
    with pytest.raises(StartError, match="does not continue"):
        Store(folder, 1 << 28, "none")


# ── Formats ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def number_in(rig: Rig) -> int:
    raw = meta_row(rig.store._env, folding.FORMAT_ROW)
    assert raw is not None
    return int(keys.U32.unpack(raw)[0])


def test_an_earlier_release_refuses_a_store_with_a_journal_and_opens_it_after_a_stop(rig: Journaled) -> None:
    rig.send("a")
    assert number_in(rig) == FORMAT | JOURNALED
    rig.core.close()
    assert (rig.folder / JOURNAL_FILE).read_bytes() == b""
    rig.journaled = False
    rig._start()
    assert number_in(rig) == FORMAT
    assert bodies(rig.pop()) == ["a"]


def test_a_broker_without_a_journal_takes_what_a_killed_one_with_a_journal_left(rig: Journaled) -> None:
    rig.send("a")
    rig.journaled = False
    rig.crash()
    assert number_in(rig) == FORMAT
    assert bodies(rig.pop()) == ["a"]


def test_a_broker_that_wrote_nothing_makes_no_journal(make_journaled: MakeJournaled) -> None:
    rig = make_journaled("quiet")
    rig.restart()
    assert number_in(rig) == FORMAT
    assert not (rig.folder / JOURNAL_FILE).exists()


# ── Full disks and maps, failed syncs ────────────────────────────────────────────────────────────────────────────────


def test_a_fold_that_meets_a_full_disk_loses_nothing_and_is_tried_again(rig: Journaled) -> None:
    rig.send("a")
    rig.skip(SECOND)
    with failing(rig.store, Fault.FULL) as hit:
        sent = rig.run(sending("b"))
        assert refusals(sent) == ["STORAGE_FULL"]
    assert hit.times
    assert rig.store.unfolded
    assert bodies(rig.pop()) == ["a"]
    rig.crash()
    rig.send("c")
    assert bodies(rig.pop()) == ["c"]


def test_a_fold_that_meets_a_full_disk_once_is_followed_by_one_that_succeeds(rig: Journaled) -> None:
    rig.send("a")
    rig.skip(SECOND)
    with failing(rig.store, Fault.FULL_ONCE):
        rig.run(ask.Pop("t", "g", max_messages=1))
    assert not rig.store.unfolded
    assert bodies(rig.pop()) in (["a"], [])
    rig.crash()


def test_a_fold_that_fails_with_room_on_the_disk_ends_the_broker_and_loses_nothing(rig: Journaled) -> None:
    rig.send("a")
    rig.skip(SECOND)
    with failing(rig.store, Fault.IO), pytest.raises(CommitFailed):
        rig.run(sending("b"))
    rig.crash()
    assert bodies(rig.pop()) == ["a"]


def test_a_journal_that_cannot_be_synced_ends_the_broker(rig: Journaled, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.send("a")
    with monkeypatch.context() as patched:
        patched.setattr(journal.Journal, "append", refuses(5))
        with pytest.raises(CommitFailed):
            rig.run(sending("b"))
    rig.crash()
    assert bodies(rig.pop()) == ["a"]


def test_a_journal_that_meets_a_full_disk_is_given_up_and_the_batch_goes_to_the_data_file(
    rig: Journaled, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.send("a")
    with monkeypatch.context() as patched:
        patched.setattr(journal.Journal, "append", refuses(28))
        first = rig.run(ask.Pop("t", "g", max_messages=1), sending("b"))
    assert refusals(first) == ["STORAGE_FULL", "STORAGE_FULL"]
    rig.send("c")
    assert not rig.store.unfolded
    rig.crash()
    assert bodies(rig.pop()) == ["a", "c"]


def refuses(number: int) -> Callable[[journal.Journal, bytes, float | None], bool]:
    def append(_: journal.Journal, changes: bytes, within_s: float | None) -> bool:
        raise DiskFault(os.strerror(number), full=number == 28)

    return append


def test_a_put_that_meets_a_full_map_is_tried_again_after_a_fold(
    rig: Journaled, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.send("a")
    replace = Transaction._replace

    def full_while_unfolded(transaction: Transaction, name: str, key: bytes, value: bytes) -> None:
        if name == "log" and rig.store.unfolded:
            raise MapFull
        replace(transaction, name, key, value)

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "_replace", full_while_unfolded)
        rig.send("b")
    assert bodies(rig.pop()) == ["a", "b"]


def test_a_batch_without_changes_leaves_no_transaction_open(rig: Journaled) -> None:
    assert rig.pop() == []
    done = threading.Thread(target=lambda: rig.store._env.begin(write=True).abort())
    done.start()
    done.join(10)
    assert not done.is_alive(), "the lock of the writer is held"


def pages_written(rig: Rig) -> int:
    """Pages that a fold writes."""
    before = written()
    rig.store.fold()
    return (written() - before) // rig.store.page_bytes


def written() -> int:
    return int(Path("/proc/self/io").read_text().partition("wchar: ")[2].split()[0])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system counts no written bytes")
def test_a_fold_of_many_messages_that_were_popped_and_acked_alone_writes_a_dozen_pages(rig: Journaled) -> None:
    rig.send(*(f"{number}" for number in range(100)))
    rig.store.fold()
    for _ in range(100):
        rig.ack(rig.pop(1))
    assert rig.store.unfolded
    assert pages_written(rig) < 15


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system counts no written bytes")
def test_a_fold_of_lone_sends_writes_twice_their_bytes(rig: Journaled) -> None:
    for number in range(100):
        rig.run(one_of(number, 1024))
    assert rig.store.unfolded
    assert pages_written(rig) * rig.store.page_bytes < 2.5 * 100 * 1024


def test_the_row_that_keeps_an_empty_database_is_seen_by_no_one(rig: Journaled) -> None:
    rig.send("a")
    rig.ack(rig.pop(1))
    assert rig.store.unfolded
    kv = rig.store.begin_batch()
    found = [
        *kv.scan("ck"),
        *kv.scan("due"),
        *kv.scan_keys("ck"),
        *kv.scan_keys("due"),
        *kv.keys("ck"),
        *kv.keys("due"),
    ]
    assert kv.cursor("ck").last()
    kv.abort()
    assert found == []
    assert rig.read("ck") == rig.read("due") == []
