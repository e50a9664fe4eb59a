"""`popmq compact`: the file shrinks, everything in it stays, and whatever goes wrong leaves the old one."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.fsck import check, compact
from popmq_server.embedded.fsck.compact import MARGIN_BYTES, Unsound, compact_folder
from popmq_server.embedded.store.folder import COMPACT_FILE, DATA_FILE
from popmq_server.embedded.store.journal.folding import FORMAT_ROW
from popmq_server.embedded.store.keys import DATABASES
from popmq_server.embedded.store.lmdb import DiskFault
from popmq_server.embedded.store.store import Store
from popmq_server.errors import StartError
from tests.engine.rig import HOUR, MINUTE, Rig, bodies, numbered

Entries = dict[str, list[tuple[bytes, bytes]]]
MIB = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


def everything(rig: Rig) -> Entries:
    entries = {name: rig.read(name) for name in DATABASES}
    entries["meta"] = [row for row in entries["meta"] if row[0] != FORMAT_ROW]  # it says whether a journal is in use
    return entries


@pytest.fixture
def used(folder: Path) -> Entries:
    """A store that was large: a topic of 6 MiB was deleted, another one is in use. Returns its entries."""
    rig = Rig(folder)
    rig.topic("large")
    for _ in range(6):
        rig.send("x" * (MIB // 2), topic="large")
    rig.topic("t", 2)
    rig.group()
    rig.send(*numbered("m", 20))
    rows = rig.pop(8, invisible_ms=HOUR)
    rig.ack(rows[:2])
    rig.reject(rows[2:3], "broken")
    rig.release(rows[3:4], delay_ms=0)
    rig.attach(topic="t", lease_ms=HOUR)
    rig.seal(1, max_messages=3)
    rig.do(ask.DeleteTopic("large"))
    rig.advance(MINUTE)
    entries = everything(rig)
    rig.core.close()
    return entries


def size(folder: Path) -> int:
    return (folder / DATA_FILE).stat().st_size


def kept(folder: Path, entries: Entries) -> None:
    """Asserts that the store is sound, a broker starts on it, and its entries are the same."""
    assert check.check_folder(folder) == []
    rig = Rig(folder)
    assert everything(rig) == entries
    assert rig.findings() == []
    assert bodies(rig.pop(1)) != []
    rig.send("after")
    rig.settle()
    assert rig.findings() == []
    rig.core.close()


def test_the_file_shrinks_and_everything_in_it_stays(folder: Path, used: Entries) -> None:
    before = size(folder)
    done = compact_folder(folder)
    assert (done.before, done.after) == (before, size(folder))
    assert before > 5 * MIB
    assert done.after < MIB
    assert not (folder / COMPACT_FILE).exists()
    kept(folder, used)


@pytest.mark.slow
def test_a_second_time_there_is_nothing_left_to_gain(folder: Path, used: Entries) -> None:
    first = compact_folder(folder)
    assert compact_folder(folder).after == first.after
    kept(folder, used)


def test_the_file_still_belongs_to_whom_it_did(folder: Path, used: Entries) -> None:
    os.chmod(folder / DATA_FILE, 0o640)
    before = (folder / DATA_FILE).stat()
    compact_folder(folder)
    after = (folder / DATA_FILE).stat()
    assert (stat.S_IMODE(after.st_mode), after.st_uid, after.st_gid) == (0o640, before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino


def test_a_folder_in_use_is_left_alone(folder: Path, used: Entries) -> None:
    before = size(folder)
    store = Store(folder, 1 << 28, "none")
    with pytest.raises(StartError, match="in use by another PopMQ"):
        compact_folder(folder)
    store.close()
    assert size(folder) == before
    kept(folder, used)


def test_no_broker_can_start_while_it_runs(folder: Path, used: Entries, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = Store.copy

    def busy(self: Store, handle: int) -> None:
        with pytest.raises(StartError, match="in use"):
            Store(folder, 1 << 28, "none")
        copy(self, handle)

    monkeypatch.setattr(Store, "copy", busy)
    compact_folder(folder)
    kept(folder, used)


def test_a_folder_without_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=f"it has no {DATA_FILE}"):
        compact_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_too_little_room_is_reported_before_anything_is_written(
    folder: Path, used: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Store, "disk_free", lambda self: MARGIN_BYTES)
        with pytest.raises(StartError, match="the disk has 64 MiB free"):
            compact_folder(folder)
    assert not (folder / COMPACT_FILE).exists()
    kept(folder, used)


def test_a_broken_store_is_left_as_it_is(folder: Path, used: Entries, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(folder, 1 << 28, "none")
    kv = store.begin()
    key, value = next(kv.scan("log"))
    kv.put("log", key, bytes(value)[:-1] + b"!")
    kv.commit()
    store.close()
    before = (folder / DATA_FILE).read_bytes()
    with pytest.raises(Unsound) as unsound:
        compact_folder(folder)
    assert unsound.value.sentences == check.check_folder(folder) != []
    assert compact.main([str(folder)]) == 1
    told = capsys.readouterr()
    assert "does not match its checksum" in told.out
    assert "nothing was changed" in told.err
    assert (folder / DATA_FILE).read_bytes() == before


fsync = os.fsync


def fail(handle: int, *_: Any) -> None:
    """An error of the disk, at the copy only."""
    if os.readlink(f"/proc/self/fd/{handle}").endswith(COMPACT_FILE):
        raise OSError(5, "Input/output error")
    fsync(handle)


def fault(*_: Any) -> None:
    raise DiskFault("No space left on device")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "name", "broken", "told"),
    [
        (Store, "copy", fault, "No space left"),
        (os, "fsync", fail, "Input/output"),
        (os, "fchmod", fail, "Input/output"),
        (compact, "_differences", lambda *_: iter(["an entry of log"]), r"differs .* an entry of log"),
    ],
    ids=["copy", "fsync", "owner", "compare"],
)
def test_a_failed_compaction_leaves_the_old_file_and_nothing_else(
    folder: Path, used: Entries, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, broken: Any, told: str
) -> None:
    before = size(folder)
    with monkeypatch.context() as patch:
        patch.setattr(where, name, broken)
        with pytest.raises(StartError, match=f"as it was.*{told}|{told}"):
            compact_folder(folder)
    assert (size(folder), (folder / COMPACT_FILE).exists()) == (before, False)
    kept(folder, used)


class Killed(BaseException):
    """The process ends here: nothing that would have come after happens."""


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["copying", "before the rename", "after the rename"])
def test_a_compaction_killed_at_any_moment_leaves_a_whole_file(
    folder: Path, used: Entries, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    before, replace = size(folder), os.replace

    def killed(*paths: Any) -> None:
        if moment == "after the rename":
            replace(*paths)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda self, missing_ok=False: None)
        patch.setattr(*((Store, "copy", killed) if moment == "copying" else (os, "replace", killed)))
        with pytest.raises(Killed):
            compact_folder(folder)
    assert (size(folder) < MIB) == (moment == "after the rename")
    assert (size(folder) == before) != (moment == "after the rename")
    kept(folder, used)
    assert compact_folder(folder).after < MIB, "what is left of a copy does not hinder the next"
    assert not (folder / COMPACT_FILE).exists()


@pytest.mark.slow
def test_a_copy_that_lacks_an_entry_or_has_another_one_is_not_taken(
    folder: Path, used: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Store.copy

    def another(self: Store, handle: int) -> None:
        kv = self.begin()
        kv.put("meta", b"counters", b"other")
        kv.commit()
        copy(self, handle)
        kv = self.begin()
        kv.put("meta", b"counters", dict(used["meta"])[b"counters"])
        kv.commit()

    monkeypatch.setattr(Store, "copy", another)
    with pytest.raises(StartError, match=r"differs .* an entry of meta"):
        compact_folder(folder)
    kept(folder, used)


def test_progress_is_reported_up_to_the_whole(folder: Path, used: Entries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "PROGRESS_S", 0.001)
    told: list[tuple[int, int]] = []
    done = compact_folder(folder, lambda *sizes: told.append(sizes))
    assert told == sorted(told)
    assert told[-1][0] == done.after
    assert done.after <= told[-1][1] * 1.2 + 4096 * 8


@pytest.mark.slow
def test_the_command_says_what_it_did(folder: Path, used: Entries, capsys: pytest.CaptureFixture[str]) -> None:
    assert compact.main([str(folder)]) == 0
    told = capsys.readouterr()
    assert told.out.startswith(f"{folder / DATA_FILE}: ")
    assert "MiB before" in told.out
    assert told.out.endswith("KiB now\n")
    assert told.err == "", "no progress where nobody looks"
    assert compact.main([str(folder / "nowhere")]) == 78


def test_pages_that_are_free_are_used_again_while_a_broker_runs(folder: Path, used: Entries) -> None:
    rig = Rig(folder)
    before = size(folder)
    for _ in range(4):
        rig.send("x" * (MIB // 2), topic="t")
        rig.ack(rig.pop(64))
    assert size(folder) <= before + 2 * MIB, "what was freed two commits ago is used again"
    rig.core.close()
