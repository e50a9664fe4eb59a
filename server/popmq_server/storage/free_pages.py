"""Counts the pages that the next write transaction may take, from the data file itself.

LMDB writes a changed page to a new place, so a delete needs pages too; pages that a commit frees are reusable two
commits later, or when the oldest reader has ended. LMDB has no call for the number of available pages; its file has it:

    meta page 0 or 1, the newer ──▶ last page of the file                the rest of the map is free
                               └──▶ root of the free list: a B-tree of commit number → the pages that it freed

Only counts are read: one page per node, and 8 bytes of each long list. The layout is that of LMDB's data format 1 (lmdb
0.9, the one that py-lmdb is built with); for any other format the result is None, or 0 for `last_page`.
"""

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

_MAGIC, _FORMAT = 0xBEEFC0DE, 1
_HEAD = 16
#: magic, version, address, map size; then of the free list: page size, flags, depth, 4 numbers, root; then of the main
#: table the same; then the last page and the number of the commit.
_META = struct.Struct("=IIQQ IHHQQQQQ IHHQQQQQ QQ")
_PAGE = struct.Struct("=QHHHH")
_NODE = struct.Struct("=HHHH")
_NUMBER = struct.Struct("=Q")
_BRANCH, _LONG = 0x01, 0x01
_NO_PAGE = 0xFFFFFFFFFFFFFFFF


class FreePages(NamedTuple):
    """Pages that the next write transaction may take, as far as they were counted, and pages available later."""

    tail: int  # of the map after the end of the file: taking them needs disk
    reusable: int  # inside the file
    pending: int  # freed by the last commit, or still visible to a reader


def count(handle: int, page_bytes: int, map_pages: int, oldest_reader: int | None, enough: int) -> FreePages | None:
    """Counts up to `enough` pages; None for a file of another format.

    `oldest_reader`: the commit that the oldest reader sees, None = there is no reader.
    """
    newest = _newest(handle, page_bytes)
    if newest is None:
        return None
    commit, last_page, root = newest
    horizon = commit if oldest_reader is None else min(commit, oldest_reader)
    tail, reusable, pending = max(0, map_pages - last_page - 1), 0, 0
    for number, pages in _lists(handle, page_bytes, root):
        if number < horizon:
            reusable += pages
            if tail + reusable >= enough:
                break
        else:
            pending += pages
    return FreePages(tail, reusable, pending)


def last_page(handle: int, page_bytes: int) -> int:
    """Number of the last page as of the last commit, 0 for a file of another format."""
    newest = _newest(handle, page_bytes)
    return 0 if newest is None else newest[1]


def _newest(handle: int, page_bytes: int) -> tuple[int, int, int] | None:
    """The fields of the newer meta page."""
    metas = [_read_meta(handle, place * page_bytes) for place in range(2)]
    return max((meta for meta in metas if meta is not None), default=None)


def _read_meta(handle: int, at: int) -> tuple[int, int, int] | None:
    """(commit, last page, root of the free list)"""
    raw = os.pread(handle, _HEAD + _META.size, at)
    if len(raw) < _HEAD + _META.size:
        return None
    found = _META.unpack_from(raw, _HEAD)
    if found[:2] != (_MAGIC, _FORMAT):
        return None
    return found[-1], found[-2], found[11]


def _lists(handle: int, page_bytes: int, root: int) -> Iterator[tuple[int, int]]:
    """(commit, number of pages) of each list of freed pages, the oldest first."""
    if root == _NO_PAGE:
        return
    raw = os.pread(handle, page_bytes, root * page_bytes)
    _, _, flags, lower, _ = _PAGE.unpack_from(raw)
    places = struct.unpack_from(f"={(lower - _HEAD) // 2}H", raw, _HEAD)
    for place in places:
        low, high, node_flags, key_bytes = _NODE.unpack_from(raw, place)
        if flags & _BRANCH:
            yield from _lists(handle, page_bytes, low | high << 16 | node_flags << 32)
            continue
        (number,) = _NUMBER.unpack_from(raw, place + _NODE.size)
        at = place + _NODE.size + key_bytes
        if node_flags & _LONG:
            (page,) = _NUMBER.unpack_from(raw, at)
            yield number, _NUMBER.unpack(os.pread(handle, _NUMBER.size, page * page_bytes + _HEAD))[0]
        else:
            yield number, _NUMBER.unpack_from(raw, at)[0]
