"""A data file that a power cut left in the middle of its creation, and the commit that failed in it."""

import mmap
from pathlib import Path

import lmdb
import pytest

from popmq_server.embedded.store.datafile.layout import (
    HEAD,
    LEAF,
    NO_PAGE,
    NUMBER,
    newest,
)
from popmq_server.embedded.store.datafile.own_files import FIRST_COMMIT_MAX
from popmq_server.embedded.store.folder import DAMAGED_FILE, DATA_FILE
from popmq_server.embedded.store.store import Store
from popmq_server.errors import StartError
from tests.engine.rig import Rig

PAGES = range(0, 2 * mmap.PAGESIZE, mmap.PAGESIZE)


def created(folder: Path) -> bytes:
    """The two pages that LMDB writes before the first commit."""
    lmdb.open(str(folder / DATA_FILE), subdir=False).close()
    return (folder / DATA_FILE).read_bytes()


@pytest.mark.parametrize("lost", PAGES, ids=["first page", "second page"])
def test_a_file_left_by_a_power_cut_before_its_first_commit_is_replaced(lost: int, tmp_path: Path) -> None:
    left = bytearray(created(tmp_path))
    left[lost : lost + 512] = bytes(512)
    for size in (len(left), lost):
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / DATA_FILE).write_bytes(left[:size])
        rig = Rig(folder)
        rig.pair()
        rig.send("a")
        assert rig.findings() == []
        rig.core.close()


def test_a_store_with_a_damaged_first_page_is_not_replaced(tmp_path: Path) -> None:
    Rig(tmp_path).core.close()
    file = tmp_path / DATA_FILE
    before = bytes(512) + file.read_bytes()[512:]
    assert len(before) > PAGES.stop
    file.write_bytes(before)
    with pytest.raises(StartError):
        Rig(tmp_path)
    assert file.read_bytes() == before


@pytest.mark.parametrize("lost", [[0], [mmap.PAGESIZE], [0, mmap.PAGESIZE]], ids=["first", "second", "both"])
def test_a_file_left_by_a_power_cut_in_its_first_commit_is_put_aside(lost: list[int], tmp_path: Path) -> None:
    """Pages of the commit are there, and its meta page is not; sectors of the first meta pages may be lost, too."""
    file = tmp_path / DATA_FILE
    lmdb.open(str(file), subdir=False).close()
    leaves = [NUMBER.pack(number) + bytes((0, 0, LEAF, 0)) for number in (2, 3)]
    left = bytearray(file.read_bytes()) + b"".join(leaf.ljust(mmap.PAGESIZE, b"x") for leaf in leaves)
    for page in lost:
        left[page : page + 512] = bytes(512)
    file.write_bytes(left)
    rig = Rig(tmp_path)
    rig.pair()
    assert rig.findings() == []
    rig.core.close()
    assert (tmp_path / DAMAGED_FILE).read_bytes() == left


@pytest.mark.parametrize("size", [512, mmap.PAGESIZE])
def test_a_small_backup_with_a_damaged_meta_page_is_not_put_aside(size: int, tmp_path: Path) -> None:
    """Its first meta page has no commit either; its topics and messages are in the file."""
    rig = Rig(tmp_path / "from")
    rig.topic()
    folder = tmp_path / "to"
    folder.mkdir()
    with open(folder / DATA_FILE, "w+b") as copy:
        rig.store.copy(copy.fileno())
    rig.core.close()
    left = bytearray((folder / DATA_FILE).read_bytes())
    left[PAGES[1] : PAGES[1] + size] = bytes(size)
    (folder / DATA_FILE).write_bytes(left)
    with pytest.raises(StartError):
        Rig(folder)
    assert (folder / DATA_FILE).read_bytes() == left


def test_a_first_commit_is_not_longer_than_what_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    monkeypatch.setattr(Store, "_check_size", lambda _: lengths.append((tmp_path / DATA_FILE).stat().st_size))
    Store(tmp_path, 1 << 28, "full").close()
    assert PAGES.stop < lengths[0] <= FIRST_COMMIT_MAX


def test_the_first_of_two_unfinished_meta_pages_counts_as_for_lmdb(tmp_path: Path) -> None:
    """A first commit that fails at its meta page leaves a second meta page that names pages without data."""
    file = tmp_path / DATA_FILE
    lmdb.open(str(file), subdir=False).close()
    depth_of_main = PAGES[1] + HEAD + 24 + 48 + 6
    root_of_main = depth_of_main + 34
    with open(file, "r+b") as opened:
        opened.seek(root_of_main)
        assert opened.read(NUMBER.size) == NUMBER.pack(NO_PAGE)
        opened.seek(depth_of_main)
        opened.write(b"\1")
        opened.seek(root_of_main)
        opened.write(NUMBER.pack(2))
        opened.flush()
        meta = newest(opened.fileno(), mmap.PAGESIZE)
    assert meta is not None
    assert meta.main.page == NO_PAGE
    rig = Rig(tmp_path)
    rig.pair()
    assert rig.findings() == []
    rig.core.close()
