"""Data files for tests of their pages: how one gets a history, and where things lie in it."""

import random
from collections.abc import Callable
from pathlib import Path

from popmq_server.embedded.store.datafile.layout import (
    FilePage,
    Meta,
    Root,
    newest,
    nodes,
    read_page,
    root_of,
)
from popmq_server.embedded.store.folder import DATA_FILE
from popmq_server.embedded.store.keys import CQ_KEY, U32, U64
from popmq_server.embedded.store.lmdb import MapFull, Transaction
from popmq_server.embedded.store.store import Store
from tests.engine.rig import Rig, numbered

PAGE = 4096


def scribble(store: Store, chance: random.Random) -> None:
    """A commit of some values, another one that removes some."""
    tx = store.begin()
    try:
        for _ in range(chance.randrange(40)):
            size = chance.choice([10, 100, 3_000, 9_000, 60_000, 300_000])
            tx.put("log", chance.randrange(2_000).to_bytes(8, "big"), b"x" * size)
        tx.commit()
    except MapFull:
        tx.abort()
    tx = store.begin()
    for _ in range(chance.randrange(40)):
        tx.delete("log", chance.randrange(2_000).to_bytes(8, "big"))
    tx.commit()


def quarantine(kv: Transaction) -> None:
    for number in range(500):
        kv.put("quar", CQ_KEY.pack(7, 0, number), U64.pack(number) + U32.pack(9))


class Image:
    """A data file that a test damages. Its quarantine has enough rows for a branch page."""

    def __init__(self, folder: Path) -> None:
        rig = Rig(folder)
        rig.pair()
        for text in numbered("m", 100):
            rig.send(text + "x" * 300)
        rig.ack(rig.pop(50))
        rig.write(quarantine)
        rig.core.close()
        self.folder = folder
        self.file = folder / DATA_FILE

    def damage(self, place: int, raw: bytes) -> None:
        with open(self.file, "r+b") as file:
            file.seek(place)
            file.write(raw)

    def read(self, look: Callable[[int], tuple[int, bytes]]) -> tuple[int, bytes]:
        with open(self.file, "rb") as file:
            return look(file.fileno())


def meta_of(handle: int) -> Meta:
    meta = newest(handle, PAGE)
    assert meta is not None
    return meta


def database(handle: int, name: bytes) -> tuple[Root, int]:
    """Root of a database, and the place in the file of its record."""
    main = read_page(handle, PAGE, meta_of(handle).main.page)
    node = next(node for node in nodes(main) if node.key == name)
    return root_of(main, node), main.number * PAGE + node.start


def first_leaf(handle: int, root: Root) -> FilePage:
    page = read_page(handle, PAGE, root.page)
    while page.flags & 1:
        page = read_page(handle, PAGE, next(nodes(page)).page or 0)
    return page
