"""Limits that the system sets: a file that may not grow is a full store, and each limit is named for what it is."""

import errno
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded.store import store
from popmq_server.embedded.store.folder import DATA_FILE
from popmq_server.embedded.store.lmdb import damage_named
from popmq_server.errors import Refused, StartError
from tests.engine.rig import Rig, sending

LIMIT = 16 << 20
BODY = "x" * 200_000


@pytest.fixture
def small_files() -> Iterator[None]:
    """This process may not write larger files (`ulimit -f`)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def fill(rig: Rig) -> Refused:
    """Sends until that is refused; returns the refusal."""
    for _ in range(2 * LIMIT // len(BODY)):
        (answer,) = rig.run(sending(BODY))
        if isinstance(answer, Refused):
            return answer
    raise AssertionError("no send was refused")


@pytest.mark.slow
@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("known", [True, False], ids=["of the process", "of the file system"])
def test_a_file_that_may_not_grow_is_a_full_store_and_acks_go_on(
    known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of a file system is not known before a write meets it."""
    if not known:
        monkeypatch.setattr(store, "largest_file", lambda: sys.maxsize)
    rig = Rig(tmp_path / "data")
    rig.pair()
    rig.send(*"abc")
    held = rig.pop(3)
    for _ in range(2):
        refusal = fill(rig)
        assert refusal.code == "STORAGE_FULL"
        assert "ulimit -f" in str(refusal)
        assert (rig.folder / DATA_FILE).stat().st_size <= LIMIT
        if held:
            rig.ack(held)
            held = []
        rig.core.close()
        assert check_folder(rig.folder) == []
        rig = Rig(tmp_path / "data")
    rig.core.close()


def test_a_limit_below_what_the_store_has_is_named_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path / "data")
    rig.pair()
    rig.core.close()
    monkeypatch.setattr(store, "largest_file", lambda: 4096)
    with pytest.raises(StartError, match="name a larger limit of the process for files"):
        Rig(tmp_path / "data")


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EROFS, "mounted read-only"),
        (errno.EIO, "the disk fails"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "fs.file-max"),
        (errno.ENOMEM, "ulimit -v"),
        (errno.EACCES, "owner of the folder"),
    ],
)
def test_a_limit_that_a_start_meets_is_named(number: int, cure: str, tmp_path: Path) -> None:
    said = os.strerror(number)
    for error in (OSError(number, said), lmdb.Error(f"{tmp_path}: {said}")):
        with pytest.raises(StartError, match=cure), damage_named(tmp_path):
            raise error
