"""A file under a name of ours that PopMQ has not written: refused by its name, and never written to."""

import mmap
import os
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest

from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded.fsck.compact import compact_folder
from popmq_server.embedded.fsck.repair import repair_folder
from popmq_server.embedded.store.datafile.layout import META_END
from popmq_server.embedded.store.datafile.own_files import FIRST_COMMIT_MAX
from popmq_server.embedded.store.fault_note import NOTE_FILE
from popmq_server.embedded.store.folder import (
    COMPACT_FILE,
    DAMAGED_FILE,
    DATA_FILE,
    LMDB_LOCK_FILE,
    LOCK_FILE,
    REPAIR_FOLDER,
)
from popmq_server.embedded.store.reserve import RESERVE_FILE
from popmq_server.embedded.store.store import Store
from popmq_server.errors import StartError
from tests.engine.rig import Rig

PAGE = mmap.PAGESIZE
SIZES: tuple[int, ...] = (
    0,
    1,
    5,
    16,
    META_END - 1,
    META_END,
    512,
    513,
    PAGE // 2,
    PAGE - 1,
    PAGE,
    PAGE + 1,
    PAGE + META_END - 1,
)
SIZES += (PAGE + META_END, PAGE + 512, 2 * PAGE - 1, 2 * PAGE, 2 * PAGE + 1, 5 * PAGE // 2, 3 * PAGE)

Run = Callable[[Path], object]


def start(folder: Path) -> None:
    """Opens the folder as `popmq serve` does, and closes it."""
    Store(folder, 1 << 26, "none").close()


READ: tuple[Run, ...] = (check_folder, compact_folder, repair_folder)
every_command = pytest.mark.parametrize("run", [start, *READ])


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The data file of a store with a topic."""
    rig = Rig(tmp_path_factory.mktemp("real") / "data")
    rig.pair()
    rig.core.close()
    return (rig.folder / DATA_FILE).read_bytes()


@pytest.fixture(scope="module")
def created(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The two meta pages that LMDB writes before the first commit."""
    file = tmp_path_factory.mktemp("new") / DATA_FILE
    lmdb.open(str(file), subdir=False).close()
    return file.read_bytes()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def refused(run: Run, folder: Path, name: str) -> None:
    """Asserts that the command names the file, and changes nothing in the folder."""
    before = contents(folder)
    with pytest.raises(StartError, match=name):
        run(folder)
    assert contents(folder) == before


def of_others(stored: bytes) -> Iterator[bytes]:
    """Contents of all sizes up to three pages that no store before its first commit has."""
    noise = random.Random(28).randbytes(3 * PAGE)
    for size in SIZES[1:]:
        yield (b"What I never saved elsewhere.\n" * 1000)[:size]
        yield noise[:size]
        yield bytes(min(size, 2 * PAGE) - 1).ljust(size, b"x")
        if stored[:size].strip(b"\0"):  # it begins with the number of its page
            yield stored[:size]


@every_command
def test_a_data_file_of_others_is_refused_at_every_size_and_stays_as_it_is(
    run: Run, stored: bytes, tmp_path: Path
) -> None:
    for number, left in enumerate(of_others(stored)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / DATA_FILE).write_bytes(left)
        if run is repair_folder and left in stored and len(left) >= 2 * PAGE:  # its meta pages are there
            assert repair_folder(folder).told
            assert (folder / DAMAGED_FILE).read_bytes() == left
            continue
        with pytest.raises(StartError, match=DATA_FILE):
            run(folder)
        assert (folder / DATA_FILE).read_bytes() == left
        assert set(os.listdir(folder)) <= {DATA_FILE, LOCK_FILE, LMDB_LOCK_FILE}


def before_a_commit(created: bytes) -> Iterator[bytes]:
    """What a power cut leaves of a store before its first commit."""
    yield from map(bytes, SIZES)
    yield bytes(FIRST_COMMIT_MAX)
    for size in SIZES:
        if META_END <= size <= PAGE or PAGE + META_END <= size <= 2 * PAGE:
            yield created[:size]
    for lost in (0, PAGE):
        torn = bytearray(created)
        torn[lost : lost + 512] = bytes(512)
        yield bytes(torn)


@pytest.mark.parametrize("run", READ)
def test_a_file_without_a_commit_is_not_said_to_be_sound_and_stays_as_it_is(
    run: Run, created: bytes, tmp_path: Path
) -> None:
    for left in (created, *before_a_commit(created)):
        (tmp_path / DATA_FILE).write_bytes(left)
        refused(run, tmp_path, "has no store")


def test_a_start_on_a_file_without_a_commit_keeps_it_aside(created: bytes, tmp_path: Path) -> None:
    for number, left in enumerate(before_a_commit(created)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / DATA_FILE).write_bytes(left)
        start(folder)
        assert check_folder(folder) == []
        assert not left or left == created or (folder / DAMAGED_FILE).read_bytes() == left


@every_command
def test_a_link_is_not_followed(run: Run, stored: bytes, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    folder.mkdir()
    for content in (b"of somebody", bytes(PAGE), stored):
        elsewhere.write_bytes(content)
        (folder / DATA_FILE).symlink_to(elsewhere)
        refused(run, folder, f"{DATA_FILE} is a symbolic link")
        assert elsewhere.read_bytes() == content
        (folder / DATA_FILE).unlink()
    (folder / DATA_FILE).symlink_to(tmp_path / "nothing")
    refused(run, folder, f"{DATA_FILE} is a symbolic link")
    assert not (tmp_path / "nothing").exists()


@every_command
def test_a_folder_a_pipe_and_a_socket_are_no_data_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / DATA_FILE).mkdir()
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b" / DATA_FILE)
    (tmp_path / "c").mkdir()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "c" / DATA_FILE))
    for name in "abc":
        with pytest.raises(StartError, match=DATA_FILE):
            run(tmp_path / name)
        assert os.listdir(tmp_path / name) == [DATA_FILE]


@pytest.mark.parametrize("run", [start, check_folder, compact_folder])
def test_the_database_of_another_program_gets_no_table_of_ours(run: Run, tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / DATA_FILE), subdir=False, max_dbs=2) as env, env.begin(write=True) as txn:
        txn.put(b"theirs", b"1")
    with pytest.raises(StartError, match=DATA_FILE):
        run(tmp_path)
    with lmdb.open(str(tmp_path / DATA_FILE), subdir=False) as env, env.begin(write=True) as txn:
        assert list(txn.cursor()) == [(b"theirs", b"1")]
        txn.delete(b"theirs")
    with pytest.raises(StartError, match=DATA_FILE):  # it is empty now, and still theirs
        start(tmp_path)


@pytest.mark.parametrize("name", [LOCK_FILE, LMDB_LOCK_FILE, RESERVE_FILE, NOTE_FILE])
def test_a_file_of_others_beside_the_data_file_is_refused_by_its_name(name: str, stored: bytes, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.write_text("of somebody")
    (folder / DATA_FILE).write_bytes(stored)
    file = folder / name
    file.write_text("of somebody")
    with pytest.raises(StartError, match=name):
        start(folder)
    assert file.read_text() == "of somebody"
    for target in (elsewhere, tmp_path / "nothing"):
        file.unlink()
        file.symlink_to(target)
        with pytest.raises(StartError, match=f"{name} is a symbolic link"):
            start(folder)
    assert elsewhere.read_text() == "of somebody"
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("left", [b"", b"4711", bytes(8)])
def test_files_that_a_killed_broker_left_are_its_own(left: bytes, stored: bytes, tmp_path: Path) -> None:
    (tmp_path / DATA_FILE).write_bytes(stored)
    (tmp_path / LOCK_FILE).write_bytes(left)
    for name in (LMDB_LOCK_FILE, RESERVE_FILE, NOTE_FILE):
        (tmp_path / name).write_bytes(bytes(len(left)))
    start(tmp_path)


def test_a_file_of_others_is_no_unfinished_copy_and_no_unfinished_repair(stored: bytes, tmp_path: Path) -> None:
    (tmp_path / DATA_FILE).write_bytes(stored)
    (tmp_path / COMPACT_FILE).write_text("of somebody")
    with pytest.raises(StartError, match=COMPACT_FILE):
        compact_folder(tmp_path)
    assert (tmp_path / COMPACT_FILE).read_text() == "of somebody"
    (tmp_path / REPAIR_FOLDER).mkdir()
    (tmp_path / REPAIR_FOLDER / "notes").write_text("of somebody")
    refused(repair_folder, tmp_path, REPAIR_FOLDER)
    assert (tmp_path / REPAIR_FOLDER / "notes").exists()
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / REPAIR_FOLDER).rename(elsewhere)
    (tmp_path / REPAIR_FOLDER).symlink_to(elsewhere)
    refused(repair_folder, tmp_path, REPAIR_FOLDER)


def test_a_check_writes_nothing(stored: bytes, tmp_path: Path) -> None:
    (tmp_path / DATA_FILE).write_bytes(stored)
    tmp_path.chmod(0o700)
    before = (contents(tmp_path), (tmp_path / DATA_FILE).stat().st_mtime_ns, tmp_path.stat().st_mtime_ns)
    assert check_folder(tmp_path) == []
    assert (contents(tmp_path), (tmp_path / DATA_FILE).stat().st_mtime_ns, tmp_path.stat().st_mtime_ns) == before
