"""The layout of LMDB's data file: meta pages, pages of a B-tree, and the nodes in them.

This is data format 1 of lmdb 0.9, the one that py-lmdb is built with. `read_meta` returns None for any other format.

    meta page    head, magic, …, the root of the free list, the root of the main table, last page, number of the commit
    branch page  head, places of the nodes; a node has a key and the number of the page below
    leaf page    head, places of the nodes; a node has a key and a value, or the number of its first long page
    long page    head with the number of pages, then a value that does not fit a leaf page

The main table has a node for each database; its value is the root of that database's B-tree.
"""

import os
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

_MAGIC, _FORMAT = 0xBEEFC0DE, 1
#: Bytes of the head of a page.
HEAD = 16
#: magic, version, address, map size; then the roots of the free list and of the main table; last page, commit.
_META = struct.Struct("=IIQQ IHHQQQQQ IHHQQQQQ QQ")
#: Bytes at the begin of a page up to the end of what a meta page says.
META_END = HEAD + _META.size
#: page size (of the free list only), flags, depth, branch, leaf and long pages, entries, number of the root page.
_ROOT = struct.Struct("=IHHQQQQQ")
ROOT_BYTES = _ROOT.size
#: number of the page, unused, flags, end of the places, begin of the nodes.
_PAGE = struct.Struct("=QHHHH")
_LONG_COUNT = struct.Struct("=I")
#: low and high half of the value's size (in a branch: of the page number), flags, bytes of the key.
_NODE = struct.Struct("=HHHH")
NODE_HEAD = _NODE.size
NUMBER = struct.Struct("=Q")

#: Flags of a page.
BRANCH, LEAF, LONG = 0x01, 0x02, 0x04
#: Flags of a node: its value is on long pages; its value is the root of a database.
_ON_LONG, _IS_ROOT = 0x01, 0x02
#: The root of an empty tree.
NO_PAGE = 0xFFFFFFFFFFFFFFFF


class Root(NamedTuple):
    """The root of one B-tree, with the counts that LMDB keeps of it."""

    depth: int
    branches: int
    leaves: int
    longs: int
    entries: int
    page: int

    @property
    def pages(self) -> int:
        """All pages of the tree."""
        return self.branches + self.leaves + self.longs


class Meta(NamedTuple):
    """A meta page. The newer of the two, with the greater commit, is valid."""

    commit: int
    last_page: int
    free_root: int  # the root page of the free list, which each count of free pages asks for
    raw: tuple[int, ...]

    @property
    def page_bytes(self) -> int:
        """The size of the file's pages."""
        return self.raw[4]

    @property
    def map_bytes(self) -> int:
        """The size of the map in which the file was written last; it only grows."""
        return self.raw[3]

    @property
    def free(self) -> Root:
        """The root of the free list."""
        return Root(*self.raw[6:12])

    @property
    def main(self) -> Root:
        """The root of the main table."""
        return Root(*self.raw[14:20])


class Node(NamedTuple):
    """A node of a branch (`page` is set) or of a leaf: its value is at `start`–`stop`, or on pages from `page` on."""

    key: bytes
    start: int
    stop: int
    page: int | None
    is_root: bool
    is_odd: bool = False  # it has a flag that no node of PopMQ's databases has

    @property
    def size(self) -> int:
        """Bytes of the value."""
        return self.stop - self.start

    def room(self, place: int) -> int:
        """Bytes that the node takes in its page, where it begins at `place`: an even number."""
        in_page = NUMBER.size if self.page is not None and self.size else self.size
        return (self.start - place + in_page + 1) // 2 * 2


class FilePage(NamedTuple):
    """The head of a page, and its bytes."""

    number: int
    flags: int
    lower: int
    upper: int
    raw: bytes

    @property
    def longs(self) -> int:
        """How many pages a long value takes, itself included."""
        count: int = _LONG_COUNT.unpack_from(self.raw, _PAGE.size - _LONG_COUNT.size)[0]
        return count


def read_page(handle: int, page_bytes: int, number: int) -> FilePage:
    """One page. Raises struct.error beyond the end of the file."""
    return page_of(os.pread(handle, page_bytes, number * page_bytes))


def page_of(raw: bytes) -> FilePage:
    """A page of these bytes. Raises struct.error if they are too few."""
    found, _, flags, lower, upper = _PAGE.unpack_from(raw)
    return FilePage(found, flags, lower, upper, raw)


def places(page: FilePage) -> tuple[int, ...]:
    """Where the nodes of a branch or leaf page begin."""
    return struct.unpack_from(f"={(page.lower - HEAD) // 2}H", page.raw, HEAD)


def nodes(page: FilePage) -> Iterator[Node]:
    """All nodes of a branch or leaf page. Raises struct.error as `node_at` does."""
    return (node_at(page, place) for place in places(page))


def node_at(page: FilePage, place: int) -> Node:
    """One node. Raises struct.error if its head lies outside of the page."""
    low, high, flags, key_bytes = _NODE.unpack_from(page.raw, place)
    begin = place + _NODE.size
    start = begin + key_bytes
    key = page.raw[begin:start]
    if page.flags & BRANCH:
        return Node(key, start, start, low | high << 16 | flags << 32, False)
    size = low | high << 16
    below = NUMBER.unpack_from(page.raw, start)[0] if flags & _ON_LONG else None
    return Node(key, start, start + size, below, bool(flags & _IS_ROOT), bool(flags & ~(_ON_LONG | _IS_ROOT)))


def root_of(page: FilePage, node: Node) -> Root:
    """The root that a node of the main table has as its value."""
    return Root(*_ROOT.unpack_from(page.raw, node.start)[2:])


def newest(handle: int, page_bytes: int) -> Meta | None:
    """The newer meta page; None for a file of another format."""
    first, second = _read_meta(handle, 0), _read_meta(handle, page_bytes)
    # Of two with the same commit LMDB takes the first. Only a store whose first commit failed has two.
    if first is None or (second is not None and second.commit > first.commit):
        return second
    return first


def _read_meta(handle: int, at: int) -> Meta | None:
    return meta_of(os.pread(handle, META_END, at))


def meta_of(raw: bytes, at: int = 0) -> Meta | None:
    """The meta page that begins there; None if these are too few bytes, or of another format."""
    if len(raw) < at + META_END:
        return None
    found = _META.unpack_from(raw, at + HEAD)
    if found[:2] != (_MAGIC, _FORMAT):
        return None
    return Meta(found[-1], found[-2], found[11], found)


def is_lock_of_lmdb(head: bytes) -> bool:
    """Whether LMDB's lock file begins with these bytes."""
    return head.startswith(_MAGIC.to_bytes(4, sys.byteorder))
