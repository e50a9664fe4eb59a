"""Whether a stopped store still has its last commit: a file beside it says how the store would look without it.

The two meta pages of LMDB take turns: commit 12 is in one, commit 11 in the other, and the page with the greater number
is valid. If the write of 12 is lost – the disk keeps the page as it was at commit 10 – commit 11 is the newest: a sound
store without the last answered change, and nothing in it is wrong.

    popmq.commit     "popmq 1 " · digest of the meta page of the commit before the last

A broker that stops writes the file, after its last sync has returned. A start, and `popmq check`, compare the digest
with that of the newest meta page: if they are equal, the last commit is gone. Two commits later that page exists
nowhere any more, so a file that an earlier stop left says nothing, and a backup, a compacted or a repaired file has
other pages. After a kill or a power cut nothing is compared: a record of each commit would cost a sync of each.

See docs/decisions/0069-what-a-start-asks-the-disk.md.
"""

import contextlib
import hashlib
import os
import pathlib

from popmq_server.embedded.store.datafile.layout import META_END, meta_of
from popmq_server.embedded.store.datafile.own_files import Content, content_of, open_own
from popmq_server.errors import StartError

COMMIT_FILE = "popmq.commit"
_BEGIN = b"popmq 1 "
_DIGEST_BYTES = 16
_BYTES = len(_BEGIN) + 2 * _DIGEST_BYTES
#: A data file that LMDB would begin anew, or that a start would put aside.
_EMPTY = (Content.NEW, Content.TORN)


def note(folder: pathlib.Path, handle: int, page_bytes: int) -> None:
    """Writes the file for the open data file of a store whose commits are all on disk. A disk without room has none."""
    pages = _metas(handle, page_bytes)
    if len(pages) < 2 or not pages[0][0] or not os.fstat(handle).st_nlink:
        return  # before its second commit, or another file has its place
    with contextlib.suppress(OSError, StartError):
        file = open_own(folder / COMMIT_FILE, os.O_RDWR | os.O_CREAT, is_note)
        try:
            owner = os.fstat(handle)
            with contextlib.suppress(OSError):  # only root gives files away
                os.fchown(file, owner.st_uid, owner.st_gid)
            os.pwrite(file, _content(pages[0][1]), 0)  # less than a sector: whole, or not there
            os.fsync(file)
        finally:
            os.close(file)


def missing(folder: pathlib.Path, data: pathlib.Path) -> str:
    """Says which commit the data file of a stopped store lacks; "" if it lacks none, or nobody can tell. Only reads."""
    with contextlib.suppress(OSError, StartError):
        file = open_own(folder / COMMIT_FILE, os.O_RDONLY, is_note)
        try:
            noted = os.pread(file, _BYTES, 0)
        finally:
            os.close(file)
        with data.open("rb") as opened:
            first = meta_of(opened.read(META_END))
            pages = _metas(opened.fileno(), first.page_bytes) if first is not None else []
        if pages and noted == _content(pages[-1][1]):
            return (
                f"{data} lacks the last commit of the broker that stopped: it ends with commit {pages[-1][0]}, and "
                f"the disk has lost the write of commit {pages[-1][0] + 1}"
            )
    return ""


def refuse_older(folder: pathlib.Path, data: pathlib.Path) -> None:
    """Raises StartError if the last commit is missing, or all are: LMDB would begin with an empty store."""
    if _is_emptied(folder, data):
        raise StartError(
            f"{data} has no commit, and had some when a broker stopped: start on a backup; if you want an empty store, "
            f"remove {COMMIT_FILE}"
        )
    if lost := missing(folder, data):
        raise StartError(
            f"{lost}, which was answered: start on a backup, or without it after `popmq check --repair {folder}`; if "
            f"you put an older copy of the file there yourself, remove {COMMIT_FILE}"
        )


def _is_emptied(folder: pathlib.Path, data: pathlib.Path) -> bool:
    """Whether a broker has stopped on a store that is not in the file any more. Only reads."""
    with (
        contextlib.suppress(OSError, StartError),
        open(open_own(folder / COMMIT_FILE, os.O_RDONLY, is_note), "rb") as note,
        open(open_own(data, os.O_RDONLY), "rb") as file,
    ):
        noted = note.read(_BYTES)
        return len(noted) == _BYTES and noted.startswith(_BEGIN) and content_of(file.fileno()) in _EMPTY
    return False


def is_note(head: bytes) -> bool:
    """Whether the file may begin with these bytes: a note, or what a power cut left."""
    return head.startswith(_BEGIN) or not head.strip(b"\0")


def _metas(handle: int, page_bytes: int) -> list[tuple[int, bytes]]:
    """(commit, bytes) of the meta pages that can be read, the newest one last."""
    raw = [os.pread(handle, META_END, at) for at in (0, page_bytes)]
    found = ((meta_of(page), page) for page in raw)
    return sorted((meta.commit, page) for meta, page in found if meta is not None)


def _content(page: bytes) -> bytes:
    return _BEGIN + hashlib.blake2b(page, digest_size=_DIGEST_BYTES).hexdigest().encode()
