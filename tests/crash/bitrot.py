"""A campaign that flips single bits in the file of a real store, and records what a broker does with each.

    build a store ─▶ for each flip, in a process of its own:  copy, flip, `popmq check`, start, read everything
                                                                            ├─ no start: `popmq check --repair` first
                                                            └─ ended by a signal: the same once more

`python -m tests.crash.bitrot FOLDER SEED FLIPS` prints a JSON line for each flip. Each runs in a fork, since a damaged
page may end its process. Half of the flips lie anywhere in the file; the other half lie in keys, short values and heads
of pages: most of a file is bodies, where a checksum finds everything.
"""

import json
import logging
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from popmq_server.clock import FakeClock
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded.fsck.repair import repair_folder
from popmq_server.embedded.store.datafile.layout import (
    Root,
    newest,
    node_at,
    places,
    read_page,
    root_of,
)
from popmq_server.embedded.store.folder import DATA_FILE
from popmq_server.errors import StartError
from tests.engine.rig import HOUR, Rig
from tests.engine.traffic.data_files import PAGE, database, first_leaf
from tests.known import known

MAP_BYTES = 1 << 26
TOPICS = ("a", "b")
FILL = "x" * 200
#: A fork that takes more CPU time is ended: its broker is busy with a job that cannot end.
PATIENCE_S = 10.0
#: The outcome of a fork that used up its time, which is not the fault of a damaged page.
BUSY = ("", "SIGPROF")


class Watched(Rig):
    """A rig in a process of its own, as `popmq serve` is."""

    note_faults = True


class Built(NamedTuple):
    """A store, the time in it, and the messages of each topic that its group has not acked."""

    folder: Path
    now_ms: int
    left: dict[str, set[str]]


def build(folder: Path) -> Built:
    """Two topics whose groups have acked some messages, lease some, and have released some."""
    rig = Rig(folder, map_bytes=MAP_BYTES)
    left = {}
    for topic in TOPICS:
        group = "g" + topic
        rig.topic(topic, 2)
        rig.group(group)
        rig.pop(topic=topic, group=group)
        sent = [f"{topic}{number:04}{FILL}" for number in range(300)]
        for at in range(0, 300, 10):
            rig.send(*sent[at : at + 10], topic=topic)
        left[topic] = set(sent)
        for turn in range(9):
            rows = rig.pop(10, topic=topic, group=group)
            if turn % 3 == 0:
                rig.ack(rows, group=group)
                left[topic] -= {row.body for row in rows}
            elif turn % 3 == 1:
                rig.release(rows[:5], group=group)
    now_ms = rig.now
    rig.core.close()
    return Built(folder, now_ms, left)


def structure(file: Path) -> list[int]:
    """The bytes in use that are not bodies: meta pages, heads of pages, keys, and values but those of the log."""
    with open(file, "rb") as opened:
        handle = opened.fileno()
        meta = newest(handle, PAGE)
        assert meta is not None
        found = [at for page in range(2) for at in range(page * PAGE + 16, page * PAGE + 152)]
        found += _tree(handle, meta.free, "")
        found += _tree(handle, meta.main, "")
    return found


def _tree(handle: int, root: Root, name: str) -> Iterator[int]:
    left = [root.page] if root.entries else []
    while left:
        number = left.pop()
        page, begin = read_page(handle, PAGE, number), number * PAGE
        yield from range(begin, begin + 16 + 2 * len(places(page)))
        for place in places(page):
            node = node_at(page, place)
            is_branch = bool(page.flags & 1)
            inline = 0 if is_branch or name == "log" else 8 if node.page is not None else node.size
            yield from range(begin + place, begin + node.start + inline)
            if is_branch:
                left.append(node.page or 0)
            elif node.is_root and (below := root_of(page, node)).entries:
                yield from _tree(handle, below, node.key.decode())


def size_of_first_value(file: Path) -> int:
    """The place of the four bytes with the size of the oldest chunk, which LMDB uses unchecked."""
    with open(file, "rb") as opened:
        root, _ = database(opened.fileno(), b"log")
        leaf = first_leaf(opened.fileno(), root)
    return leaf.number * PAGE + places(leaf)[0]


def flips(built: Built, seed: int, count: int) -> Iterator[tuple[int, int]]:
    """(byte, bit) of each flip, half of them in the structure. The first one ends a broker by a signal."""
    chance, file = random.Random(seed), built.folder / DATA_FILE
    size, inner = file.stat().st_size, structure(file)
    yield size_of_first_value(file) + 3, 7
    for number in range(1, count):
        yield (chance.choice(inner) if number % 2 else chance.randrange(size)), chance.randrange(8)


def look(built: Built, place: int, bit: int, scratch: Path) -> dict[str, Any]:
    """The effect of one flip, observed in a forked process.

    When a signal ended it (`signal`), a supervisor starts the broker again: the rest is what that start does then.
    """
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(built.folder, scratch)
    with open(scratch / DATA_FILE, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1 << bit]))
    seen = {"place": place, "bit": bit} | _forked(lambda: _seen(built, scratch))
    if seen["ended"] in BUSY:
        return seen | {"signal": ""}
    again = _forked(lambda: _seen(built, scratch))
    # Messages acked by the first process are not delivered again, so losses cannot be counted.
    return seen | again | {"signal": seen["ended"], "wrong": seen["wrong"] + again["wrong"], "lost": 0}


def _forked(looks: Callable[[], Iterator[dict[str, Any]]]) -> dict[str, Any]:
    """The last result that a forked process reports, and the signal that ended it."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        signal.setitimer(signal.ITIMER_PROF, PATIENCE_S)
        try:
            for seen in looks():
                os.write(writes, json.dumps(seen).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(writes)
    with open(reads, "rb") as pipe:
        lines = pipe.read().splitlines()
    status = os.waitpid(child, 0)[1]
    ended = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else ""
    nothing = {"found": "", "start": "", "error": "", "repaired": False, "lost": 0, "wrong": 0}
    return {"ended": ended} | nothing | (json.loads(lines[-1]) if lines else {})


def _seen(built: Built, scratch: Path) -> Iterator[dict[str, Any]]:
    """Yields the results so far; the last one is used."""
    seen: dict[str, Any] = {"found": "", "start": "", "repaired": False, "error": "", "wrong": 0, "lost": 0}
    try:
        seen["found"] = next(iter(check_folder(scratch)), "")
    except StartError as error:
        seen["found"] = str(error)
    yield seen
    try:
        rig: Rig = Watched(scratch, FakeClock(built.now_ms), MAP_BYTES)
    except StartError as error:
        seen |= {"start": str(error), "repaired": True}
        yield seen
        try:
            repair_folder(scratch)
        except StartError as later:  # the number of the format is one that a later release may have
            yield seen | {"error": str(later)}
            return
        rig = Watched(scratch, FakeClock(built.now_ms), MAP_BYTES)
    for topic in TOPICS:
        got = set[str]()
        try:
            for bodies in _drained(rig, topic):
                got |= bodies
                seen["wrong"] += sum(not _is_whole(topic, body) for body in bodies)
                yield seen
        except Exception as error:
            seen["error"] = seen["error"] or repr(error)
        seen["lost"] += max(0, len(built.left[topic] - got) - _counted(rig, topic))
        yield seen


def _drained(rig: Rig, topic: str) -> Iterator[set[str]]:
    """The bodies that a group gets until nothing more comes."""
    empty = 0
    while empty < 4:
        rows = rig.pop(32, topic=topic, group="g" + topic)
        yield {row.body for row in rows}
        if rows:
            rig.ack(rows, group="g" + topic)
        else:
            empty += 1
            rig.advance(HOUR)


def _counted(rig: Rig, topic: str) -> int:
    """Messages that the group's numbers name as quarantined, or as dead letters: attempts may be damaged."""
    try:
        numbers = rig.numbers("g" + topic, topic)
    except Exception:
        return 0
    return known(numbers.quarantined) + numbers.dead


def _is_whole(topic: str, body: str) -> bool:
    return body[:1] == topic and body[1:5].isdigit() and body[5:] == FILL


def main(folder: str, seed: int, count: int) -> None:
    """Prints a JSON line for each flip."""
    logging.disable(logging.CRITICAL)
    built = build(Path(folder) / "built")
    for place, bit in flips(built, seed, count):
        print(json.dumps(look(built, place, bit, Path(folder) / "scratch")), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
