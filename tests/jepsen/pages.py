"""A campaign that puts once valid pages into a real store: what a disk does that loses or misplaces a write.

    stale        a page as it was after an earlier commit: the last write of it never reached the disk
    same keys    a stale page with the keys of the page that it replaces: only values differ, so no count is wrong
    misdirected  one page in use over another one: a write went to the wrong place

Every row of such a page passes its checksum. `python -m tests.jepsen.pages FOLDER SEED TRIES` prints a JSON line
for each try: what `popmq check` finds, what a start says, and how what is delivered differs from what was left.
"""

import json
import logging
import random
import shutil
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from popmq_server.clock import FakeClock
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded.store.datafile.layout import (
    LEAF,
    Root,
    newest,
    node_at,
    nodes,
    page_of,
    places,
    read_page,
    root_of,
)
from popmq_server.embedded.store.folder import DATA_FILE
from popmq_server.errors import StartError
from tests.crash.bitrot import FILL, MAP_BYTES, TOPICS, Watched, _drained, _forked, _is_whole
from tests.engine.rig import Rig
from tests.engine.traffic.data_files import PAGE

#: Earlier moments whose pages are kept; each is some commits after the one before.
MOMENTS = 12


@dataclass
class Past:
    """A store, the time in it, the bodies that each topic's group has not acked, and its file at earlier commits."""

    folder: Path
    now_ms: int = 0
    left: dict[str, set[str]] = field(default_factory=dict)
    files: list[bytes] = field(default_factory=list)

    def keep(self) -> None:
        """Keeps the file as it is now, between two commits."""
        self.files.append((self.folder / DATA_FILE).read_bytes())


@dataclass(frozen=True)
class Replaced:
    """One try: the page `number`, which is of `table`, gets these bytes."""

    kind: str
    number: int
    table: str
    raw: bytes


def build(folder: Path) -> Past:
    """Two topics whose groups pop, ack and release, while the file is kept again and again."""
    past = Past(folder)
    rig = Rig(folder, map_bytes=MAP_BYTES)
    for topic in TOPICS:
        rig.topic(topic, 2)
        rig.group("g" + topic)
        rig.pop(topic=topic, group="g" + topic)
        past.left[topic] = set()
    for turn in range(MOMENTS):
        for topic in TOPICS:
            _traffic(rig, past, topic, turn)
    past.now_ms = rig.now
    rig.core.close()
    return past


def _traffic(rig: Rig, past: Past, topic: str, turn: int) -> None:
    """Thirty messages in three commits; then ten are acked, ten stay leased, and five of another ten are released."""
    group = "g" + topic
    sent = [f"{topic}{turn * 30 + number:04}{FILL}" for number in range(30)]
    for at in range(0, 30, 10):
        rig.send(*sent[at : at + 10], topic=topic)
        past.keep()
    past.left[topic] |= set(sent)
    rows = rig.pop(10, topic=topic, group=group)
    past.keep()
    rig.ack(rows, group=group)
    past.keep()
    past.left[topic] -= {row.body for row in rows}
    rig.pop(10, topic=topic, group=group)
    past.keep()
    rig.release(rig.pop(10, topic=topic, group=group)[:5], group=group)
    past.keep()


def pages_in_use(file: Path) -> dict[int, str]:
    """The number of each page of a tree, with the table that it is of; "free" is the list of free pages."""
    found: dict[int, str] = {}
    with open(file, "rb") as opened:
        meta = newest(opened.fileno(), PAGE)
        assert meta is not None
        _walk(opened.fileno(), meta.free, "free", found)
        _walk(opened.fileno(), meta.main, "main", found)
    return found


def _walk(handle: int, root: Root, table: str, found: dict[int, str]) -> None:
    """Adds the pages below a root, those of the tables in the main table too."""
    left = [root.page] if root.entries else []
    while left:
        number = left.pop()
        found[number] = table
        page = read_page(handle, PAGE, number)
        for place in places(page):
            node = node_at(page, place)
            if page.flags & 1:
                left.append(node.page or 0)
            elif node.is_root and (below := root_of(page, node)).entries:
                _walk(handle, below, node.key.decode(), found)


def replaced(past: Past, seed: int, tries: int) -> Iterator[Replaced]:
    """In turn the three kinds, each of them other bytes than what is there."""
    chance, file = random.Random(seed), past.folder / DATA_FILE
    now, used = file.read_bytes(), pages_in_use(file)
    numbers = sorted(used)
    twins = [Replaced("same keys", number, used[number], raw) for number, raw in _same_keys(past, now, numbers)]
    chance.shuffle(twins)
    for number in range(tries):
        if number % 3 == 2 and twins:
            yield twins.pop()
        else:
            yield _other(past, now, used, chance, "misdirected" if number % 3 else "stale")


def _other(past: Past, now: bytes, used: dict[int, str], chance: random.Random, kind: str) -> Replaced:
    """A page in use that gets what another one has, or what it had itself at an earlier moment."""
    while True:
        number = chance.choice(sorted(used))
        source, at = (chance.choice(past.files), number) if kind == "stale" else (now, chance.choice(sorted(used)))
        raw = _page(source, at)
        if len(raw) == PAGE and raw != _page(now, number) and raw.strip(b"\0"):
            return Replaced(kind, number, used[number], raw)


def _page(file: bytes, number: int) -> bytes:
    """The bytes of one page."""
    return file[number * PAGE : (number + 1) * PAGE]


def _same_keys(past: Past, now: bytes, numbers: list[int]) -> list[tuple[int, bytes]]:
    """All pages as they were at any moment, if they had the keys that they have now and other values."""
    found = set[tuple[int, bytes]]()
    for number in numbers:
        keys = _keys(_page(now, number))
        for file in past.files:
            raw = _page(file, number)
            if raw != _page(now, number) and keys and _keys(raw) == keys:
                found.add((number, raw))
    return sorted(found)


def _keys(raw: bytes) -> list[bytes]:
    """The keys of a leaf page; none of another page."""
    try:
        page = page_of(raw)
        return [node.key for node in nodes(page)] if page.flags == LEAF else []
    except struct.error:
        return []


def look(past: Past, put: Replaced, scratch: Path) -> dict[str, Any]:
    """What a broker does with one such page, seen in a process of its own."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(past.folder, scratch)
    with open(scratch / DATA_FILE, "r+b") as file:
        file.seek(put.number * PAGE)
        file.write(put.raw)
    own_number = struct.unpack_from("=Q", put.raw)[0] == put.number
    nothing = {"found": "", "start": "", "error": "", "lost": 0, "repeated": 0, "wrong": 0}
    told = {"kind": put.kind, "page": put.number, "table": put.table, "own_number": own_number}
    return told | nothing | _forked(lambda: _seen(past, scratch))


def _seen(past: Past, scratch: Path) -> Iterator[dict[str, Any]]:
    """What is seen so far; the last one counts. A start that refuses ends it."""
    seen: dict[str, Any] = {"found": "", "start": "", "error": "", "lost": 0, "repeated": 0, "wrong": 0}
    yield seen
    try:
        seen["found"] = next(iter(check_folder(scratch)), "")
    except StartError as error:
        seen["found"] = str(error)
    yield seen
    try:
        rig = Watched(scratch, FakeClock(past.now_ms), MAP_BYTES)
    except StartError as error:
        yield seen | {"start": str(error)}
        return
    for topic in TOPICS:
        got = set[str]()
        try:
            for bodies in _drained(rig, topic):
                got |= bodies
                yield seen
        except Exception as error:
            seen["error"] = seen["error"] or repr(error)
        seen["wrong"] += sum(not _is_whole(topic, body) for body in got)
        seen["lost"] += len(past.left[topic] - got)
        seen["repeated"] += len(got - past.left[topic])
        yield seen


def main(folder: str, seed: int, tries: int) -> None:
    """Prints a JSON line for each try."""
    logging.disable(logging.CRITICAL)
    past = build(Path(folder) / "built")
    for put in replaced(past, seed, tries):
        print(json.dumps(look(past, put, Path(folder) / "scratch")), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
