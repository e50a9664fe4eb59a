"""Finds the wrong bit of a damaged page, so that a repair loses no entry of it.

LMDB packs the nodes of a page without gaps, from `upper` to the end of the page. One wrong bit in the head of the page,
in the list of places, or in the head of a node leaves a gap or an overlap, which no other single bit closes.
"""

import itertools
import struct

from popmq_server.embedded.store.datafile.checksums import is_whole
from popmq_server.embedded.store.datafile.layout import (
    BRANCH,
    HEAD,
    NODE_HEAD,
    ROOT_BYTES,
    FilePage,
    Node,
    node_at,
    page_of,
    places,
)


def is_sound(page: FilePage, number: int, kind: int, page_bytes: int) -> bool:
    """Whether a branch or leaf page may be used as it is: its head, and nodes that fill it in ascending order."""
    if page.number != number or page.flags != kind or page.lower % 2:
        return False
    if not HEAD < page.lower <= page.upper <= page_bytes:
        return False
    try:
        found = [(place, node_at(page, place)) for place in places(page)]
    except struct.error:
        return False
    at = page.upper
    for place, node in sorted(found, key=lambda each: each[0]):
        if place != at:
            return False
        at += node.room(place)
    keys = [node.key for _, node in found]
    roots = [node for _, node in found if node.is_root]
    return (
        at == page_bytes
        and all(one < other for one, other in itertools.pairwise(keys))
        and (kind == BRANCH or not any(node.is_odd for _, node in found))
        and (not roots or (len(roots) == len(found) and all(map(_is_database, roots))))
    )


def _is_database(node: Node) -> bool:
    """Whether an entry of the main table has the size of one; names of databases are alphabetic."""
    return node.size == ROOT_BYTES and node.key.isalpha()


def mended(page: FilePage, number: int, kind: int, page_bytes: int) -> FilePage | None:
    """The page with one bit turned back, if it is sound then and no other bit does the same; else None.

    It tries the bits of all heads: up to a second for each page.
    """
    found: list[FilePage] = []
    for at in _bytes_of_heads(page, page_bytes):
        for bit in range(8):
            raw = bytearray(page.raw)
            raw[at] ^= 1 << bit
            other = page_of(bytes(raw))
            if is_sound(other, number, kind, page_bytes):
                found.append(other)
    if len(found) > 1:  # an odd size may be one more: the checksums of the rows decide
        best = max(map(_whole_rows, found))
        found = [other for other in found if _whole_rows(other) == best]
    return found[0] if len(found) == 1 else None


def _whole_rows(page: FilePage) -> int:
    """How many rows of a leaf match their checksum."""
    rows = [node_at(page, place) for place in places(page)]
    return sum(is_whole(row.key, page.raw[row.start : row.stop]) for row in rows if row.page is None)


def _bytes_of_heads(page: FilePage, page_bytes: int) -> list[int]:
    """The bytes of the page's head, of the places, and of the heads of the nodes there."""
    stop = max(HEAD, min(page.lower, page_bytes))
    listed = places(page._replace(lower=stop))
    heads = itertools.chain.from_iterable(range(place, place + NODE_HEAD) for place in listed)
    return sorted({*range(stop), *(at for at in heads if at < page_bytes)})
