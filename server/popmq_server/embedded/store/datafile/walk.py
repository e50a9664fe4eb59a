"""Walks the pages of the data file and reports damage that LMDB does not detect.

LMDB has no checksums of its pages. A record of the log has one (values/message.py), so damage inside a message is found
when the message is read. Damage in the tree around it is found here:

    a tree          each page has its own number and kind, and is used once; keys ascend; the root's counts are true
    the free list   its pages exist, descend, and no tree uses them: LMDB would overwrite them
    the pages       each one up to the last is used or free: a page that is neither was cut off from its tree;
                    the disk can read those that are used

`popmq check` does the whole walk. A start does the part that a write could make worse (`check_free_list`): LMDB takes
its next pages from that list.

See docs/decisions/0045-damaged-pages.md.
"""

import itertools
import os
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator

from popmq_server.embedded.store.datafile.layout import (
    BRANCH,
    HEAD,
    LEAF,
    LONG,
    NO_PAGE,
    NUMBER,
    ROOT_BYTES,
    FilePage,
    Meta,
    Node,
    Root,
    newest,
    node_at,
    places,
    read_page,
    root_of,
)
from popmq_server.embedded.store.datafile.mending import is_sound, mended

#: Pages of the free list that a start checks: 30 ms. `popmq check` checks all of them.
FREE_CHECKED_AT_START = 1 << 18
#: Damaged pages of which a repair looks for the wrong bit: up to a second each.
MENDED_MAX = 100
#: Pages 0 and 1 are the meta pages.
_METAS = 2
#: Bytes of a long value that are read at once.
_READ_BYTES = 1 << 20


#: An entry of a leaf page.
Entry = tuple[FilePage, Node]
#: The least key, and one that is greater than all keys.
Bounds = tuple[bytes, bytes | None]


class DamagedPage(Exception):
    """A page differs from what the page above it says. `sentence` says where."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


def faults(handle: int, page_bytes: int) -> Iterator[str]:
    """All damage of the pages of a file, as sentences. No process may write the file meanwhile.

    Nothing for a file of another format.
    """
    meta = newest(handle, page_bytes)
    if meta is None:
        return
    if wrong := _beyond_map(handle, page_bytes, meta):
        yield wrong
        meta = meta._replace(last_page=os.fstat(handle).st_size // page_bytes)
    walk = _Walk(handle, page_bytes, meta.last_page)
    free: list[int] = []
    databases: list[tuple[str, Root]] = []
    yield from _each("the free list", walk.tree(meta.free, _by_number), lambda *at: free.extend(walk.freed(*at)))
    yield from _each("the main table", walk.tree(meta.main), lambda *at: databases.append(_database(*at)))
    for name, root in databases:
        yield from _each(f"database {name!r}", walk.tree(root), lambda *at: None)
    yield from walk.unreadable()
    yield from walk.compare(free)


def check_free_list(handle: int, page_bytes: int) -> str:
    """The damage of the last page's number, the free list or the counts of the databases; "" if there is none. Bounded,
    for a start.
    """
    meta = newest(handle, page_bytes)
    if meta is None:
        return ""
    if wrong := _beyond_map(handle, page_bytes, meta):
        return wrong
    walk = _Walk(handle, page_bytes, meta.last_page)
    databases: list[tuple[str, Root]] = []
    left = FREE_CHECKED_AT_START

    def count(page: FilePage, node: Node) -> None:
        nonlocal left
        left -= sum(1 for _ in walk.freed(page, node)) if left > 0 else 0

    wrongs = itertools.chain(
        _each("the free list", walk.tree(meta.free, _by_number), count),
        _each("the main table", walk.tree(meta.main), lambda *at: databases.append(_database(*at))),
        (
            f"database {name!r} is said to have {root.pages:,} pages, the file has {meta.last_page + 1:,}"
            for name, root in databases
            if root.pages > meta.last_page
        ),
    )
    return next(wrongs, "")


def _beyond_map(handle: int, page_bytes: int, meta: Meta) -> str:
    """The damage of the number of the last page: no transaction takes a page that is not in the map; "" if none."""
    pages = max(meta.map_bytes, os.fstat(handle).st_size) // page_bytes
    if meta.last_page < pages:
        return ""
    return f"its last page is said to be {meta.last_page:,}, the map has {pages:,} pages"


def rescue(handle: int, page_bytes: int, only: str = "") -> Iterator[tuple[str, bytes, bytes] | str]:
    """The readable part of a damaged file: (database, key, value) of each entry, and a sentence for each page left out.
    `only`: of one database.

    A value may be damaged: its user has to check it.
    """
    meta = newest(handle, page_bytes)
    if meta is None or not meta.commit:
        yield "no meta page with a commit can be read: the file may have all its rows, and none of them is found"
        return
    walk = _Walk(handle, page_bytes, meta.last_page, mends=MENDED_MAX)
    databases: list[tuple[str, Root]] = []
    yield from _each("the main table", walk.tree(meta.main), lambda *at: databases.append(_database(*at)))
    for name, root in databases:
        for found in walk.tree(root) if only in ("", name) else ():
            if isinstance(found, str):
                yield f"database {name!r}: {found}"
            else:
                try:
                    yield name, found[1].key, walk.value(*found)
                except DamagedPage as damaged:
                    yield f"database {name!r}: {damaged.sentence}"


def _each(name: str, found: Iterator[Entry | str], visit: Callable[[FilePage, Node], None]) -> Iterator[str]:
    """Visits the entries of a tree; returns its faults."""
    for entry in found:
        if isinstance(entry, str):
            yield f"{name}: {entry}"
            continue
        try:
            visit(*entry)
        except DamagedPage as damaged:
            yield f"{name}: {damaged.sentence}"
        except struct.error:
            yield f"{name}: an entry of page {entry[0].number} is cut off"
        except OSError as error:
            yield f"{name}: the disk cannot read an entry of page {entry[0].number}: {error.strerror}"


def _database(page: FilePage, node: Node) -> tuple[str, Root]:
    """(name, root) of a database."""
    if not node.is_root or node.size != ROOT_BYTES:
        raise DamagedPage(f"the main table has an entry {node.key!r} that is not a database")
    return node.key.decode(errors="replace"), root_of(page, node)


def _lies(key: bytes, bounds: Bounds) -> bool:
    return bounds[0] <= key and (bounds[1] is None or key < bounds[1])


def _by_number(key: bytes) -> bytes:
    """The order of the free list: its keys are numbers of commits, the low byte first."""
    return int.from_bytes(key, sys.byteorder).to_bytes(len(key), "big")


class _Walk:
    """One walk over a file: which pages were seen. `mends`: how many damaged pages it may try to correct."""

    def __init__(self, handle: int, page_bytes: int, last_page: int, mends: int = 0) -> None:
        self.mends = mends
        self.handle = handle
        self.page_bytes = page_bytes
        self.last_page = last_page
        self.used = bytearray(min(last_page + 1, os.fstat(handle).st_size // page_bytes + _METAS))
        self.used[:_METAS] = b"\1" * _METAS

    def tree(self, root: Root, order: Callable[[bytes], bytes] = bytes) -> Iterator[Entry | str]:
        """The entries of a B-tree, and its faults. A damaged page is left out, with all that is below it.

        `order`: the sort key of a node's key.
        """
        counts, faults, before = Counter[str](), 0, b""
        for found in self._below(root.page, root.depth, counts, order, (b"", None)) if root.page != NO_PAGE else ():
            yield found
            if isinstance(found, str):
                faults += 1
                continue
            counts["entries"] += 1
            at = order(found[1].key)
            if at <= before:
                faults += 1
                yield f"the keys of page {found[0].number} do not ascend"
            before = at
        wrong = [name for name in ("branches", "leaves", "longs", "entries") if counts[name] != getattr(root, name)]
        if wrong and not faults:
            yield ", ".join(f"{counts[name]:,} {name}, its root says {getattr(root, name):,}" for name in wrong)

    def _below(
        self, number: int, levels: int, counts: Counter[str], order: Callable[[bytes], bytes], bounds: Bounds
    ) -> Iterator[Entry | str]:
        """The entries below a page that is `levels` levels above the end of a leaf; counts its pages.

        `bounds`: of its keys, as the branches above say; a search follows these.
        """
        leaf, below = levels == 1, list[Node]()
        try:
            page, is_mended = self._mended(number, LEAF if leaf else BRANCH)
        except DamagedPage as damaged:
            yield damaged.sentence
            return
        if is_mended:
            yield f"corrected one bit of page {number}"
        counts["leaves" if leaf else "branches"] += 1
        for node in self._nodes(page, leaf, counts):
            if isinstance(node, str):
                yield node
            elif not leaf:
                below.append(node)
            else:
                yield page, node
                if not _lies(order(node.key), bounds):
                    yield f"a search does not find a key of page {number}"
        for index, node in enumerate(below):
            least = order(node.key) if node.key else bounds[0]
            beyond = order(below[index + 1].key) if index + 1 < len(below) else bounds[1]
            yield from self._below(node.page or 0, levels - 1, counts, order, (least, beyond))

    def _nodes(self, page: FilePage, leaf: bool, counts: Counter[str]) -> Iterator[Node | str]:
        """The nodes of a page; counts the long pages of its values."""
        taken = 0
        for place in places(page):
            try:
                node = node_at(page, place)
                if leaf and self.mends and (sized := self._sized(node)) is not node:
                    yield f"corrected the size of an entry of page {page.number}"
                    node = sized
                counts["longs"] += self._long(node) if leaf else 0
            except DamagedPage as damaged:
                yield damaged.sentence
            except struct.error:
                yield f"an entry of page {page.number} does not lie in it"
            else:
                taken += node.room(place)
                yield node
        if taken != self.page_bytes - page.upper:
            yield f"the entries of page {page.number} take {taken:,} bytes, not {self.page_bytes - page.upper:,}"

    def _mended(self, number: int, kind: int) -> tuple[FilePage, bool]:
        """Reads a page of a tree, once; whether it was damaged, and is corrected. Raises DamagedPage."""
        page = self._read(number)
        if self.mends > 0 and not is_sound(page, number, kind, self.page_bytes):
            self.mends -= 1
            if (found := mended(page, number, kind, self.page_bytes)) is not None:
                return found, True
        return self._of_tree(page, number, kind), False

    def _of_tree(self, page: FilePage, number: int, kind: int) -> FilePage:
        """The page, if its head is right. Raises DamagedPage."""
        if page.number != number or page.flags != kind:
            raise DamagedPage(f"page {number} is not a page of this tree")
        sound = HEAD < page.lower <= page.upper <= self.page_bytes and not page.lower % 2
        if not sound or page.upper != min(places(page)):
            raise DamagedPage(f"the head of page {number} is damaged")
        return page

    def _read(self, number: int) -> FilePage:
        """Reads a page that was not used before. Raises DamagedPage."""
        self._take(number)
        try:
            return read_page(self.handle, self.page_bytes, number)
        except struct.error:
            raise DamagedPage(f"page {number} lies beyond the end of the file") from None
        except OSError as error:
            raise DamagedPage(f"the disk cannot read page {number}: {error.strerror}") from None

    def _take(self, number: int, count: int = 1) -> None:
        """Marks pages as used. Raises DamagedPage."""
        if not _METAS <= number <= len(self.used) - count:
            raise DamagedPage(f"page {number} is named, and does not exist")
        if any(self.used[number : number + count]):
            raise DamagedPage(f"page {number} is used twice")
        self.used[number : number + count] = b"\1" * count

    def _sized(self, node: Node) -> Node:
        """The node with the size that its long pages have room for, if one wrong bit makes it larger."""
        if node.page is None or not _METAS <= node.page <= self.last_page:
            return node
        page = read_page(self.handle, self.page_bytes, node.page)
        if page.number != node.page or page.flags != LONG or self._pages_of(node.size) <= page.longs:
            return node
        fitting = [size for bit in range(32) if self._pages_of(size := node.size ^ 1 << bit) == page.longs]
        return node._replace(stop=node.start + fitting[0]) if len(fitting) == 1 else node

    def _pages_of(self, size: int) -> int:
        """The long pages that a value of this size needs."""
        return (HEAD + size + self.page_bytes - 1) // self.page_bytes

    def _long(self, node: Node) -> int:
        """How many long pages the value of a leaf's node has. Raises DamagedPage."""
        if node.is_odd or (node.is_root and node.size != ROOT_BYTES):
            raise DamagedPage(f"the entry {node.key.hex()} is of an unknown kind")
        if node.page is None:
            if node.stop > self.page_bytes:
                raise DamagedPage(f"an entry has {node.size} bytes, more than its page")
            return 0
        page = self._read(node.page)
        # A shorter value that replaced a long one keeps its pages.
        needed = self._pages_of(node.size)
        longs = page.longs
        if page.number != node.page or page.flags != LONG or longs < needed:
            if not self.mends or (page.number ^ node.page).bit_count() + (page.flags ^ LONG).bit_count() > 1:
                raise DamagedPage(f"page {node.page} does not begin a value of {node.size} bytes")
            longs = needed  # its value has a checksum, or its records have
        self._take(node.page + 1, longs - 1)
        return longs

    def value(self, page: FilePage, node: Node) -> bytes:
        """The bytes of a value. Raises DamagedPage."""
        if node.page is None:
            return page.raw[node.start : node.stop]
        try:
            return os.pread(self.handle, node.size, node.page * self.page_bytes + HEAD)
        except OSError as error:
            raise DamagedPage(f"the disk cannot read the value of {node.key.hex()}: {error.strerror}") from None

    def unreadable(self) -> Iterator[str]:
        """Reads all pages that are used, in large pieces: LMDB's read of a bad sector would end the process."""
        step = _READ_BYTES // self.page_bytes
        for first in range(0, len(self.used), step):
            numbers = [number for number in range(first, min(first + step, len(self.used))) if self.used[number]]
            if numbers and self._read_error(first, step):
                errors = ((number, self._read_error(number, 1)) for number in numbers)
                yield from (f"the disk cannot read page {number}: {error}" for number, error in errors if error)

    def _read_error(self, first: int, count: int) -> str:
        """Why the disk cannot read some pages, "" if it can."""
        try:
            os.pread(self.handle, count * self.page_bytes, first * self.page_bytes)
        except OSError as error:
            return error.strerror or "error"
        return ""

    def freed(self, page: FilePage, node: Node) -> Iterator[int]:
        """The page numbers in one entry of the free list: it has their count, then the greatest first."""
        pieces = self._pieces(page, node)
        count = next(pieces, 0)
        if node.size != NUMBER.size * (count + 1):
            raise DamagedPage(
                f"the list of commit {NUMBER.unpack(node.key)[0]} says {count:,} pages, it has {node.size:,} bytes"
            )
        before = self.last_page + 1
        for number in pieces:
            if not _METAS <= number < before:
                raise DamagedPage(f"page {number} is out of order in the list of commit {NUMBER.unpack(node.key)[0]}")
            before = number
            yield number

    def _pieces(self, page: FilePage, node: Node) -> Iterator[int]:
        """The numbers in a value, in pieces of bounded size. It may be shorter than its node says."""
        if node.page is None:
            yield from _numbers(page.raw[node.start : node.stop])
            return
        begin, end = node.page * self.page_bytes + HEAD, node.page * self.page_bytes + HEAD + node.size
        for at in range(begin, end, _READ_BYTES):
            yield from _numbers(os.pread(self.handle, min(_READ_BYTES, end - at), at))

    def compare(self, free: list[int]) -> Iterator[str]:
        """Compares the pages of the free list with those of the trees; returns the differences as sentences."""
        both = twice = 0
        seen = bytearray(self.last_page + 1)
        for number in free:
            both += number < len(self.used) and self.used[number]
            twice += seen[number]
            seen[number] = 1
        if both:
            yield f"{both:,} pages are used, and in the free list too"
        if twice:
            yield f"{twice:,} pages are in the free list twice"
        lost = sum(1 for used, freed in zip(self.used, seen, strict=False) if not used and not freed)
        if lost:
            yield f"{lost:,} pages are neither used nor free: their content cannot be reached"


def _numbers(raw: bytes) -> tuple[int, ...]:
    return struct.unpack(f"={len(raw) // NUMBER.size}Q", raw[: len(raw) // NUMBER.size * NUMBER.size])
