"""The pages that a transaction may still take are counted exactly: so many fit, and not one more."""

import random
from pathlib import Path

import pytest

from popmq_server.embedded.store.datafile import checksums
from popmq_server.embedded.store.lmdb import MapFull
from popmq_server.embedded.store.store import Store, reading
from popmq_server.options import MAX_SIZE_MIN
from tests.engine.traffic.data_files import scribble

#: A value that takes one page of its own, with its checksum.
PAGE_VALUE = b"x" * (4080 - checksums.BYTES)
EVERYTHING = 1 << 40


def fill_up(store: Store) -> int:
    """How many pages a transaction takes before the map is full; all of them are freed again."""
    tx = store.begin()
    count = 0
    try:
        while True:
            tx.put("meta", b"page%d" % count, PAGE_VALUE)
            count += 1
    except MapFull:
        return count
    finally:
        tx.abort()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_pages_that_are_counted_are_those_that_can_be_taken(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    store = Store(tmp_path / "data", MAX_SIZE_MIN, "none")
    for _ in range(25):
        scribble(store, chance)
        pages = store.free_pages(EVERYTHING)
        assert pages is not None
        counted, taken = pages.tail + pages.reusable, fill_up(store)
        branches = counted // 100 + 14  # of the tree that the pages hang in
        assert counted - branches <= taken <= counted
    store.close()


def test_pages_that_a_reader_still_sees_are_pending_and_not_reusable(tmp_path: Path) -> None:
    store = Store(tmp_path / "data", MAX_SIZE_MIN, "none")

    def commit(change: bool) -> None:
        tx = store.begin()
        for number in range(50):
            if change:
                tx.put("log", b"%02d" % number, PAGE_VALUE)
            else:
                tx.delete("log", b"%02d" % number)
        tx.commit()

    commit(True)
    with reading(store):
        commit(False)
        commit(True)
        held = store.free_pages(EVERYTHING)
    free = store.free_pages(EVERYTHING)
    assert held is not None
    assert free is not None
    assert free.reusable >= held.reusable + 50
    assert held.pending >= free.pending + 50
    store.close()


def test_counting_ends_when_it_is_enough(tmp_path: Path) -> None:
    store = Store(tmp_path / "data", MAX_SIZE_MIN, "none")
    pages = store.free_pages(1)
    assert pages is not None
    assert (pages.reusable, pages.tail > 4000) == (0, True)
    store.close()


def test_a_file_of_another_format_is_not_judged(tmp_path: Path) -> None:
    store = Store(tmp_path / "data", MAX_SIZE_MIN, "none")
    with (tmp_path / "data" / "popmq.mdb").open("r+b") as file:
        for place in range(2):
            file.seek(place * store.page_bytes + 16)
            file.write(b"\0" * 8)
    assert store.free_pages(1) is None
