"""A sync on a thread of its own: who waits for it stops waiting in time, and learns of errors."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from popmq_server.embedded.store.journal.syncing import Syncing

#: Seconds that no test waits for, unless it fails.
LONG_S = 30.0


class Disk:
    """In place of fdatasync: each sync ends when it may."""

    def __init__(self) -> None:
        self.ends, self.begun = threading.Semaphore(0), threading.Semaphore(0)
        self.error: OSError | None = None

    def __call__(self, _: int) -> None:
        self.begun.release()
        assert self.ends.acquire(timeout=LONG_S)
        if self.error is not None:
            raise self.error


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(os, "fdatasync", disk)
    return disk


@pytest.fixture
def syncing(tmp_path: Path, disk: Disk) -> Iterator[Syncing]:
    syncing = Syncing(os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT))
    yield syncing
    disk.ends.release()
    syncing.close()


def test_a_sync_that_ends_in_time_is_on_disk(syncing: Syncing, disk: Disk) -> None:
    disk.ends.release()
    assert syncing.sync(LONG_S)
    assert not syncing.busy


def test_a_sync_that_takes_longer_is_not_waited_for_and_no_other_begins_before_it_has_ended(
    syncing: Syncing, disk: Disk
) -> None:
    assert not syncing.sync(0.01)
    assert disk.begun.acquire(timeout=LONG_S)
    assert syncing.busy
    assert not syncing.sync(LONG_S)
    assert not disk.begun.acquire(blocking=False)
    disk.ends.release(2)
    while syncing.busy:
        pass
    assert syncing.sync(LONG_S)


def test_an_error_is_raised_once_and_that_of_an_abandoned_sync_never(syncing: Syncing, disk: Disk) -> None:
    disk.error = OSError(5, "Input/output error")
    disk.ends.release()
    with pytest.raises(OSError, match="Input/output error"):
        syncing.sync(LONG_S)
    assert not syncing.sync(0.01)
    disk.ends.release()
    while syncing.busy:
        pass
    disk.error = None
    disk.ends.release()
    assert syncing.sync(LONG_S)


def test_a_close_waits_for_the_sync_that_runs(tmp_path: Path, disk: Disk) -> None:
    syncing = Syncing(os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT))
    assert not syncing.sync(0.01)
    closing = threading.Thread(target=syncing.close)
    closing.start()
    assert disk.begun.acquire(timeout=LONG_S)
    assert closing.is_alive()
    disk.ends.release()
    closing.join(LONG_S)
    assert not closing.is_alive()
