"""The journal's file: what is read back from it whole, cut, damaged, or beside another data file."""

import os
from pathlib import Path

import pytest

from popmq_server.embedded.store.folder import JOURNAL_FILE
from popmq_server.embedded.store.journal import file as journal
from popmq_server.embedded.store.journal import recovery
from popmq_server.embedded.store.journal.file import Journal, Records
from popmq_server.embedded.store.lmdb import DiskFault
from popmq_server.errors import StartError

OURS, THEIRS = b"identity", b"another."
CHANGES = [b"first changes", b"", b"third, the longest of the changes", b"fourth"]


def written(folder: Path, changes: list[bytes], identity: bytes = OURS, commit: int = 7) -> list[int]:
    """Writes a journal; returns where each record ends."""
    made = Journal(folder, synced=False)
    made.begin(identity, commit)
    ends = []
    for one in changes:
        made.append(one)
        ends.append(made.bytes)
    made.close()
    return ends


def raw(folder: Path) -> bytes:
    return (folder / JOURNAL_FILE).read_bytes()


def left(folder: Path, content: bytes) -> Records | None:
    """What a start reads in a journal with this content."""
    (folder / JOURNAL_FILE).write_bytes(content)
    return journal.read(folder)


def test_records_are_read_in_their_order(tmp_path: Path) -> None:
    written(tmp_path, CHANGES)
    assert journal.read(tmp_path) == Records(OURS, 7, CHANGES, damaged=False)


def test_a_folder_without_a_journal_and_one_without_records_have_nothing(tmp_path: Path) -> None:
    assert journal.read(tmp_path) is None
    assert left(tmp_path, b"") is None
    assert left(tmp_path, bytes(10_000)) is None


@pytest.mark.parametrize("filler", [b"", bytes(4096)], ids=["the file ends", "zeros follow"])
def test_a_journal_that_is_cut_anywhere_has_the_records_before_the_cut(tmp_path: Path, filler: bytes) -> None:
    ends = written(tmp_path, CHANGES)
    whole = raw(tmp_path)
    for cut in range(len(whole) + 1):
        found = left(tmp_path, whole[:cut] + filler)
        count = sum(end <= cut for end in ends)
        if count:
            assert found == Records(OURS, 7, CHANGES[:count], damaged=False), cut
        else:
            assert found is None, cut


def test_a_flipped_bit_in_the_last_record_ends_the_journal_before_it(tmp_path: Path) -> None:
    ends = written(tmp_path, CHANGES)
    whole = raw(tmp_path)
    for bit in range(8 * ends[-2], 8 * ends[-1]):
        assert left(tmp_path, flipped(whole, bit)) == Records(OURS, 7, CHANGES[:-1], damaged=False), bit


def test_a_flipped_bit_in_any_earlier_record_is_damage_and_not_the_end(tmp_path: Path) -> None:
    ends = written(tmp_path, CHANGES)
    whole = raw(tmp_path)
    for bit in range(8 * ends[-2]):
        found = left(tmp_path, flipped(whole, bit))
        assert found == Records(OURS, 7, CHANGES[: sum(8 * end <= bit for end in ends)], damaged=True), bit


def flipped(whole: bytes, bit: int) -> bytes:
    content = bytearray(whole)
    content[bit >> 3] ^= 1 << (bit & 7)
    return bytes(content)


def test_records_of_an_earlier_commit_are_written_over_and_never_continue_later_ones(tmp_path: Path) -> None:
    made = Journal(tmp_path, synced=False)
    made.begin(OURS, 7)
    for number in range(20):
        made.append(b"of commit 7, number %d" % number)
    made.begin(OURS, 8)
    made.append(b"of commit 8")
    assert journal.read(tmp_path) == Records(OURS, 8, [b"of commit 8"], damaged=False)
    made.close()


def test_a_torn_first_record_leaves_those_of_the_earlier_commit_which_are_void(tmp_path: Path) -> None:
    written(tmp_path, CHANGES, commit=7)
    before = raw(tmp_path)
    written(tmp_path, [b"x" * 30], commit=8)
    torn = raw(tmp_path)[:40] + before[40:]
    found = left(tmp_path, torn)
    assert found is not None
    assert recovery.missing(tmp_path, found, OURS, 8) == recovery.Missing([], False)


def test_a_record_that_could_not_be_written_is_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Journal(tmp_path, synced=True)
    made.begin(OURS, 7)
    made.append(b"one")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fails)
        with pytest.raises(DiskFault):
            made.append(b"two, which no sync made durable")
    assert made.changes() == [b"one"]
    made.append(b"three")
    assert journal.read(tmp_path) == Records(OURS, 7, [b"one", b"three"], damaged=False)
    made.close()


@pytest.mark.parametrize("before", [[], [b"one"]])
def test_a_record_whose_sync_failed_is_not_found_unless_the_disk_takes_no_write_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: list[bytes]
) -> None:
    made = Journal(tmp_path, synced=True)
    made.begin(OURS, 7)
    for one in before:
        made.append(one)
    for takes in (True, False):
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", fails)
            patched.setattr(journal, "_write", journal._write if takes else lambda *_: fails(0))
            with pytest.raises(DiskFault):
                made.append(b"two")
        assert made.unsure is not takes
        found = before if takes else [*before, b"two"]
        assert journal.read(tmp_path) == (Records(OURS, 7, found, damaged=False) if found else None)
    made.begin(OURS, 7)
    assert made.unsure, "another transaction on the same commit voids nothing"
    made.close()


def fails(_: int) -> None:
    raise OSError(5, "Input/output error")


def test_a_journal_has_room_for_so_many_bytes(tmp_path: Path) -> None:
    made = Journal(tmp_path, synced=False)
    count = 0
    while made.left >= 100_000:
        made.append(bytes(100_000))
        count += 1
    assert count == journal.JOURNAL_BYTES // 100_036
    assert len(raw(tmp_path)) <= journal.JOURNAL_BYTES
    made.close()


def test_what_the_data_file_has_is_not_made_again_and_what_it_lacks_is(tmp_path: Path) -> None:
    found = Records(OURS, 7, CHANGES, damaged=False)
    assert recovery.missing(tmp_path, found, OURS, 7) == recovery.Missing(CHANGES, False)
    assert recovery.missing(tmp_path, found, OURS, 8) == recovery.Missing([], False)


@pytest.mark.parametrize(("identity", "commit"), [(THEIRS, 7), (THEIRS, 9), (b"", 9), (OURS, 6)])
def test_a_journal_beside_another_data_file_is_refused(tmp_path: Path, identity: bytes, commit: int) -> None:
    with pytest.raises(StartError, match=r"popmq\.journal does not continue popmq\.mdb"):
        recovery.missing(tmp_path, Records(OURS, 7, CHANGES, damaged=False), identity, commit)


def test_another_programs_file_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / JOURNAL_FILE).write_text("notes of mine\n" * 100)
    with pytest.raises(StartError, match="not a file of PopMQ"):
        journal.read(tmp_path)
    with pytest.raises(StartError, match="not a file of PopMQ"):
        Journal(tmp_path, synced=False)
