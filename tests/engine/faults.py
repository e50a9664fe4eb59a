"""Faults for tests: a disk that fails in a commit or in a put, and a process that is killed around a commit."""

import contextlib
import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest

from popmq_server.embedded.state import space
from popmq_server.embedded.store.journal.changes import JournaledTransaction
from popmq_server.embedded.store.lmdb import DiskFault, MapFull, Transaction
from popmq_server.embedded.store.store import Store
from tests.engine.rig import Rig


class Fault(enum.Enum):
    """A fault of the next commits."""

    NONE = "the disk is well"
    IO = "an I/O error, with room on the disk"
    FULL_ONCE = "a full disk, and then room for what frees"
    FULL = "a full disk, whatever is tried"
    MAP_ONCE = "a full map, and then room for what frees"
    MAP = "a full map, whatever is tried"


@dataclass
class Hit:
    """How often the fault occurred."""

    times: int = 0


@contextlib.contextmanager
def failing(store: Store, fault: Fault) -> Iterator[Hit]:
    """Commits of this process fail with the fault. The disk looks full only after it, so nothing is refused before."""
    hit = Hit()
    commit = Transaction.commit

    def bad_commit(transaction: Transaction) -> None:
        once = fault in (Fault.FULL_ONCE, Fault.MAP_ONCE)
        if fault is Fault.NONE or (once and hit.times):
            return commit(transaction)
        hit.times += 1
        if fault in (Fault.MAP_ONCE, Fault.MAP):
            raise MapFull
        raise DiskFault("injected")

    def free() -> int:
        return 1 << 40 if fault is Fault.IO or not hit.times else 0

    with (
        mock.patch.object(Transaction, "commit", bad_commit),
        mock.patch.object(store, "disk_free", free),
        mock.patch.object(space.Space, "unfolded_bytes", return_value=0),  # a journal's batches meet it in their fold
    ):
        yield hit


@contextlib.contextmanager
def failing_put(number: int) -> Iterator[Hit]:
    """The n-th put, counted from 1, finds the map full; 0: none does."""
    hit = Hit()
    left = [number]

    def bad(put: Callable[[Any, str, bytes, bytes], None]) -> Callable[[Any, str, bytes, bytes], None]:
        def bad_put(transaction: Any, name: str, key: bytes, value: bytes) -> None:
            left[0] -= 1
            if left[0] == 0:
                hit.times += 1
                raise MapFull
            put(transaction, name, key, value)

        return bad_put

    with (
        mock.patch.object(Transaction, "put", bad(Transaction.put)),
        mock.patch.object(JournaledTransaction, "put", bad(JournaledTransaction.put)),
    ):
        yield hit


class Killed(BaseException):
    """Stands for kill -9: the code that was running does not continue."""


def killed_before_commit(rig: Rig, *commands: Any) -> None:
    """Runs a commit batch up to its commit, and starts again from what is on disk."""

    def die(transaction: Transaction) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Transaction, "commit", die)
        patched.setattr(JournaledTransaction, "commit", die)
        with pytest.raises(Killed):
            rig.run(*commands)
    rig.crash()


def killed_before_answer(rig: Rig, *commands: Any) -> None:
    """Commits, and starts again before any caller has its answer."""
    rig.run(*commands)
    rig.crash()
