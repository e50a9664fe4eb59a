"""Whether a file in the data folder is PopMQ's own: looked at before anything is written to it.

A name proves nothing: under `popmq.mdb` there may be a link to a file elsewhere, another program's database, or a text.
Such a file is refused by its name and stays as it is. Of a data file that LMDB cannot open, only one without a commit
may be replaced:

    meta page of commit 0 │ meta page of commit 0 │ pages of the first commit ▶ sync ▶ a meta page

LMDB writes two meta pages first, and syncs them with the pages of the first commit; the meta page of that commit comes
after the sync. Until then a power cut may leave empty sectors where pages begin.
"""

import enum
import mmap
import os
import pathlib
import stat
from collections.abc import Callable

from popmq_server.embedded.store.datafile.layout import (
    HEAD,
    LEAF,
    META_END,
    is_lock_of_lmdb,
    meta_of,
    page_of,
)
from popmq_server.errors import StartError

#: Bytes of a sector, which a disk writes as a whole.
_SECTOR = 512
#: A store whose first commit is not complete is not longer: that commit leaves four pages. One with a topic has six,
#: and in a compacted copy or a backup it has the meta pages of a first commit as well.
FIRST_COMMIT_MAX = 5 * mmap.PAGESIZE
#: The page of LMDB is that of the system which made the file.
_PAGE_SIZES = frozenset(1 << power for power in range(12, 17))
#: Pages 0 and 1 are the meta pages.
_METAS = 2
#: The number that LMDB gives the commit of a compacted copy.
_COMMIT_OF_COPY = 1
#: Bytes at the beginning of a file by which it is recognized.
_HEAD_BYTES = 4096


class Content(enum.Enum):
    """The state of a data file, by its size and its meta pages."""

    NEW = "no commit yet"  # LMDB goes on with it
    TORN = "no commit yet, and meta pages are missing"  # LMDB refuses it
    STORE = "commits"
    CUT = "a commit, and not both meta pages"
    PART = "a commit, of which pages are missing"
    FOREIGN = "something else"


def open_own(path: pathlib.Path, flags: int, is_own: Callable[[bytes], object] = lambda _: True) -> int:
    """Opens a regular file, and nothing that a link leads to. `is_own`: whether it may begin with these bytes; an empty
    file may. Raises OSError; StartError for a file that is not PopMQ's.
    """
    if path.is_symlink():
        raise StartError(
            f"{path} is a symbolic link, which PopMQ does not follow: replace it by the file, or name the folder that "
            "has the file"
        )
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise StartError(f"{path} is not a regular file: move it away, or name another folder")
        head = os.pread(handle, _HEAD_BYTES, 0)
        if head and not is_own(head):
            raise foreign(path)
    except BaseException:
        os.close(handle)
        raise
    return handle


def foreign(path: pathlib.Path) -> StartError:
    """A file that PopMQ has not written: it stays as it is."""
    return StartError(f"{path} is not a file of PopMQ, and stays as it is: move it away, or name another folder")


def is_zeros(head: bytes) -> bool:
    """Whether these bytes are zeros: of a file that has only a size, or that a power cut left."""
    return not head.strip(b"\0")


def is_lock(head: bytes) -> bool:
    """Whether LMDB's lock file may begin with these bytes."""
    return is_lock_of_lmdb(head) or is_zeros(head)


def is_copy(head: bytes) -> bool:
    """Whether an unfinished copy of a store may begin with these bytes."""
    return meta_of(head) is not None or is_zeros(head)


def content_of(handle: int) -> Content:
    """Returns the state of an open data file; only reads."""
    size, raw = os.fstat(handle).st_size, os.pread(handle, FIRST_COMMIT_MAX, 0)
    first = meta_of(raw)
    page_bytes = first.page_bytes if first is not None and first.page_bytes in _PAGE_SIZES else mmap.PAGESIZE
    metas = [first, meta_of(raw, page_bytes)]
    is_cut = size < 2 * page_bytes
    if newest := max((meta for meta in metas if meta is not None), default=None):
        # LMDB would open a part of a copy, and the process would crash when it reads a missing page. Only a copy that
        # was not written to has its full length for sure: any other file may end before its last page.
        is_part = newest.commit == _COMMIT_OF_COPY and size < (newest.last_page + 1) * page_bytes
        if newest.commit:
            return Content.CUT if is_cut else Content.PART if is_part else Content.STORE
    if size > FIRST_COMMIT_MAX:
        return Content.STORE if any(metas) else Content.FOREIGN
    pages = [raw[begin : begin + page_bytes] for begin in range(0, size, page_bytes)]
    if not all(_is_before_commit(number, page) for number, page in enumerate(pages)):
        return Content.FOREIGN
    return Content.NEW if not size or (all(metas) and not is_cut) else Content.TORN


def _is_before_commit(number: int, page: bytes) -> bool:
    """Whether a page may be one of a store without a commit: a meta page, then leaves; or it begins with an empty
    sector.
    """
    if number < _METAS:
        return is_zeros(page[META_END if meta_of(page) is not None else 0 :])
    if is_zeros(page[:_SECTOR]):
        return True
    head = page_of(page) if len(page) >= HEAD else None
    return head is not None and (head.number, head.flags) == (number, LEAF)
