"""A repair turns one wrong bit of a page back: no entry of the page is lost."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from popmq_server.embedded.fsck.repair import repair_folder
from popmq_server.embedded.store.datafile.layout import (
    LEAF,
    FilePage,
    places,
    read_page,
)
from popmq_server.embedded.store.datafile.mending import is_sound, mended
from popmq_server.embedded.store.folder import DATA_FILE
from tests.engine.rig import Rig
from tests.engine.traffic.data_files import PAGE, Image, database, first_leaf, meta_of

pytestmark = [pytest.mark.slow, pytest.mark.smoke]

#: Byte and bit in a page, by what they belong to. A node begins with the size of its value [4], its kind [2], and the
#: size of its key [2].
WRONG: dict[str, Callable[[FilePage], tuple[int, int]]] = {
    "the number": lambda page: (0, 3),
    "the kind": lambda page: (10, 0),
    "a flag that no page on a disk has": lambda page: (11, 6),
    "the number of its nodes": lambda page: (12, 1),
    "the begin of its nodes": lambda page: (14, 2),
    "the place of a node": lambda page: (18, 4),
    "the size of a value": lambda page: (places(page)[1], 4),
    "the size of a value, far too large": lambda page: (places(page)[1] + 3, 7),
    "the kind of an entry": lambda page: (places(page)[1] + 4, 2),
    "the size of a key": lambda page: (places(page)[1] + 6, 1),
}


def leaf_of(name: str, handle: int) -> FilePage:
    if name == "the main table":
        return read_page(handle, PAGE, meta_of(handle).main.page)
    return first_leaf(handle, database(handle, name.encode())[0])


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("name", ["quar", "the main table"])
def test_a_repair_loses_nothing_of_a_page_with_one_wrong_bit(what: str, name: str, tmp_path: Path) -> None:
    image = Image(tmp_path / "data")
    before = all_rows(image.folder)
    with open(image.file, "r+b") as file:
        page = leaf_of(name, file.fileno())
        assert is_sound(page, page.number, LEAF, PAGE)
        at, bit = WRONG[what](page)
        wrong = bytearray(page.raw)
        wrong[at] ^= 1 << bit
        file.seek(page.number * PAGE)
        file.write(wrong)
    assert f"corrected one bit of page {page.number}" in " ".join(repair_folder(image.folder).told)
    assert all_rows(image.folder) == before


def all_rows(folder: Path) -> dict[str, list[tuple[bytes, bytes]]]:
    rig = Rig(folder)
    found = {name: rig.read(name) for name in ("log", "cq", "quar", "ck", "due", "poff", "stat", "topic", "group")}
    rig.core.close()
    return found


def test_a_repair_loses_no_long_value_whose_size_has_a_wrong_bit(tmp_path: Path) -> None:
    """A chunk of the log."""
    image = Image(tmp_path / "data")
    before = all_rows(image.folder)
    with open(image.file, "r+b") as file:
        page = leaf_of("log", file.fileno())
        file.seek(page.number * PAGE + places(page)[0] + 3)
        file.write(b"\x80")
    assert f"corrected the size of an entry of page {page.number}" in " ".join(repair_folder(image.folder).told)
    assert all_rows(image.folder) == before


def test_a_page_with_two_wrong_bits_is_not_guessed(tmp_path: Path) -> None:
    image = Image(tmp_path / "data")
    with open(image.folder / DATA_FILE, "rb") as file:
        page = leaf_of("quar", file.fileno())
    one, two = places(page)[1:3]
    wrong = bytearray(page.raw)
    struct.pack_into("=H", wrong, one + 6, 9)
    struct.pack_into("=H", wrong, two + 6, 77)
    assert (
        mended(FilePage(page.number, page.flags, page.lower, page.upper, bytes(wrong)), page.number, LEAF, PAGE) is None
    )
