"""Counts the pages that the next write transaction may take, from the data file itself.

LMDB writes a changed page to a new place, so a delete needs pages too; pages that a commit frees are reusable two
commits later, or when the oldest reader has ended. LMDB has no call for the number of available pages; its file has it:

    meta page 0 or 1, the newer ──▶ last page of the file                the rest of the map is free
                               └──▶ root of the free list: a B-tree of commit number → the pages that it freed

Only counts are read: one page per node, and 8 bytes of each long list (layout.py). For another format the result is
None, or 0 for `last_page`.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from popmq_server.embedded.store.datafile.layout import (
    BRANCH,
    HEAD,
    NO_PAGE,
    NUMBER,
    newest,
    nodes,
    read_page,
)


class FreePages(NamedTuple):
    """Pages that the next write transaction may take, as far as they were counted, and pages available later."""

    tail: int  # of the map after the end of the file: taking them needs disk
    reusable: int  # inside the file
    pending: int  # freed by the last commit, or still visible to a reader


def count(handle: int, page_bytes: int, map_pages: int, oldest_reader: int | None, enough: int) -> FreePages | None:
    """Counts up to `enough` pages; None for a file of another format.

    `oldest_reader`: the commit that the oldest reader sees, None = there is no reader.
    """
    meta = newest(handle, page_bytes)
    if meta is None:
        return None
    horizon = meta.commit if oldest_reader is None else min(meta.commit, oldest_reader)
    tail, reusable, pending = max(0, map_pages - meta.last_page - 1), 0, 0
    for number, pages in _lists(handle, page_bytes, meta.free_root):
        if number < horizon:
            reusable += pages
            if tail + reusable >= enough:
                break
        else:
            pending += pages
    return FreePages(tail, reusable, pending)


def last_page(handle: int, page_bytes: int) -> int:
    """Number of the last page as of the last commit, 0 for a file of another format."""
    meta = newest(handle, page_bytes)
    return 0 if meta is None else meta.last_page


def _lists(handle: int, page_bytes: int, root: int) -> Iterator[tuple[int, int]]:
    """(commit, number of pages) of each list of freed pages, the oldest first."""
    if root == NO_PAGE:
        return
    page = read_page(handle, page_bytes, root)
    for node in nodes(page):
        if page.flags & BRANCH:
            assert node.page is not None
            yield from _lists(handle, page_bytes, node.page)
            continue
        (number,) = NUMBER.unpack(node.key)
        if node.page is None:
            yield number, NUMBER.unpack_from(page.raw, node.start)[0]
        else:
            raw = os.pread(handle, NUMBER.size, node.page * page_bytes + HEAD)
            yield number, NUMBER.unpack(raw)[0]
