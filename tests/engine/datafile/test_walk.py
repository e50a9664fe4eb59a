"""The walk over the pages of a data file: a sound file has no fault, and each kind of damage is named."""

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from popmq_server.embedded.fsck.repair import repair_folder
from popmq_server.embedded.store.datafile.layout import (
    NUMBER,
    node_at,
    nodes,
    places,
    read_page,
)
from popmq_server.embedded.store.datafile.walk import check_free_list, faults
from popmq_server.embedded.store.folder import DATA_FILE
from popmq_server.embedded.store.store import Store
from popmq_server.errors import StartError
from popmq_server.options import MAX_SIZE_MIN
from tests.engine.rig import Rig
from tests.engine.traffic.data_files import PAGE, Image, database, first_leaf, meta_of, scribble


def found_in(folder: Path) -> list[str]:
    handle = os.open(folder / DATA_FILE, os.O_RDONLY)
    try:
        return list(faults(handle, PAGE))
    finally:
        os.close(handle)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_sound_file_has_no_fault_after_any_history(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    store = Store(tmp_path, MAX_SIZE_MIN, "none")
    for _ in range(20):
        scribble(store, chance)
        assert list(store.page_faults()) == []
        assert check_free_list(store._file, PAGE) == ""
    store.close()


def wrong_number(handle: int) -> tuple[int, bytes]:
    page = first_leaf(handle, database(handle, b"cq")[0])
    return page.number * PAGE, NUMBER.pack(page.number + 1)


def odd_flag(handle: int) -> tuple[int, bytes]:
    """That of a page which its transaction dropped again: LMDB never writes one, and would reuse it."""
    page = first_leaf(handle, database(handle, b"cq")[0])
    return page.number * PAGE + 11, b"\x40"


def long_entry(handle: int) -> tuple[int, bytes]:
    page = first_leaf(handle, database(handle, b"cq")[0])
    return page.number * PAGE + places(page)[-1], struct.pack("=H", 60_000)


def swapped_keys(handle: int) -> tuple[int, bytes]:
    page = first_leaf(handle, database(handle, b"log")[0])
    one, other, *rest = places(page)
    return page.number * PAGE + 16, struct.pack(f"={2 + len(rest)}H", other, one, *rest)


def wrong_bound(handle: int) -> tuple[int, bytes]:
    root, _ = database(handle, b"quar")
    assert root.depth > 1
    branch = read_page(handle, PAGE, root.page)
    node = node_at(branch, places(branch)[1])
    return branch.number * PAGE + node.start - len(node.key), b"\xff" * len(node.key)


def wrong_count(handle: int) -> tuple[int, bytes]:
    root, place = database(handle, b"cq")
    return place + 32, NUMBER.pack(root.entries + 1)


def lost_tree(handle: int) -> tuple[int, bytes]:
    _, place = database(handle, b"hist")
    return place, b"\0" * 40 + b"\xff" * 8


def last_page_beyond_the_map(handle: int) -> tuple[int, bytes]:
    """A flipped bit of a high digit, in the newer meta page. The walk must not take time for each page that is not."""
    meta = meta_of(handle)
    newer = next(at for at in (0, PAGE) if os.pread(handle, 8, at + 144) == NUMBER.pack(meta.commit))
    return newer + 136, NUMBER.pack(meta.last_page ^ 1 << 33)


def free_page_in_use(handle: int) -> tuple[int, bytes]:
    meta = meta_of(handle)
    leaf = read_page(handle, PAGE, meta.free.page)
    node = next(node for node in nodes(leaf) if node.page is None and node.size >= 16)
    return leaf.number * PAGE + node.start + 8, NUMBER.pack(meta.main.page)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        (wrong_number, "is not a page of this tree"),
        (odd_flag, "is not a page of this tree"),
        (long_entry, "more than its page"),
        (swapped_keys, "do not ascend"),
        (wrong_bound, "a search does not find a key"),
        (wrong_count, "its root says"),
        (lost_tree, "neither used nor free"),
        (free_page_in_use, "in the free list too"),
        (last_page_beyond_the_map, "last page is said to be"),
    ],
)
def test_damage_of_a_page_is_named(how: Callable[[int], tuple[int, bytes]], sentence: str, tmp_path: Path) -> None:
    image = Image(tmp_path / "data")
    assert found_in(image.folder) == []
    image.damage(*image.read(how))
    assert any(sentence in fault for fault in found_in(image.folder)), found_in(image.folder)


@pytest.mark.slow
def test_a_start_refuses_a_damaged_free_list_and_writes_nothing(tmp_path: Path) -> None:
    image = Image(tmp_path / "data")

    def beyond(handle: int) -> tuple[int, bytes]:
        place, _ = free_page_in_use(handle)
        return place, NUMBER.pack(1 << 40)

    image.damage(*image.read(beyond))
    before = image.file.read_bytes()
    for _ in range(2):  # a start that was refused leaves the folder free
        with pytest.raises(StartError, match=r"is damaged: the free list: .* out of order .* --repair"):
            Rig(image.folder)
    assert image.file.read_bytes() == before


def test_a_start_refuses_a_last_page_beyond_the_map_and_a_repair_keeps_all(tmp_path: Path) -> None:
    image = Image(tmp_path / "data")
    rig = Rig(image.folder)
    before = [rig.read(name) for name in ("log", "cq", "ck")]
    rig.core.close()
    image.damage(*image.read(last_page_beyond_the_map))
    with pytest.raises(StartError, match=r"is damaged: its last page is said to be .* --repair"):
        Rig(image.folder)
    repair_folder(image.folder)
    assert found_in(image.folder) == []
    rig = Rig(image.folder)
    assert [rig.read(name) for name in ("log", "cq", "ck")] == before
    rig.core.close()


@pytest.mark.slow
def test_a_start_names_damaged_pages_that_lmdb_meets(tmp_path: Path) -> None:
    image = Image(tmp_path / "data")

    def stats(handle: int) -> tuple[int, bytes]:
        page = first_leaf(handle, database(handle, b"stat")[0])
        return page.number * PAGE + 10, struct.pack("=H", 4)

    image.damage(*image.read(stats))
    with pytest.raises(StartError, match=r"is damaged: mdb.* `popmq check --repair "):
        Rig(image.folder)
