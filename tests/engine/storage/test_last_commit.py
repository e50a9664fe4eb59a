"""A stopped store that lost its last commit is refused, and nothing that an operator does to a sound one is."""

import shutil
from pathlib import Path

import pytest

from popmq_server.clock import FakeClock
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded.fsck.compact import compact_folder
from popmq_server.embedded.fsck.repair import repair_folder
from popmq_server.embedded.store.datafile.last_commit import COMMIT_FILE
from popmq_server.embedded.store.datafile.layout import meta_of
from popmq_server.embedded.store.folder import DATA_FILE
from popmq_server.errors import StartError
from tests.engine.rig import Rig, bodies
from tests.engine.traffic.data_files import PAGE


@pytest.fixture
def rig(unjournaled: None, tmp_path: Path) -> Rig:
    """A store of which each send is a commit of LMDB."""
    rig = Rig(tmp_path / "data")
    rig.pair()
    rig.send("first", "second")
    return rig


def pages(folder: Path) -> dict[int, tuple[int, bytes]]:
    """Number of a meta page → its commit and its bytes."""
    raw = (folder / DATA_FILE).read_bytes()
    metas = {number: meta_of(raw, number * PAGE) for number in (0, 1)}
    return {number: (meta.commit, raw[number * PAGE : (number + 1) * PAGE]) for number, meta in metas.items() if meta}


def lose_last_commit(rig: Rig) -> int:
    """Sends twice and stops; the disk then has the newest meta page as it was before. Returns the commit left."""
    before = pages(rig.folder)
    rig.send("third")
    rig.send("last")
    rig.core.close()
    now = pages(rig.folder)
    newest = max(now, key=lambda number: now[number][0])
    with open(rig.folder / DATA_FILE, "r+b") as file:
        file.seek(newest * PAGE)
        file.write(before[newest][1])
    return now[1 - newest][0]


def again(rig: Rig) -> Rig:
    return Rig(rig.folder, FakeClock(rig.now))


def test_a_start_without_the_last_commit_is_refused_and_names_the_commits(rig: Rig) -> None:
    left = lose_last_commit(rig)
    for refused in (again, lambda one: compact_folder(one.folder)):
        with pytest.raises(StartError, match=rf"check --repair .*remove {COMMIT_FILE}"):
            refused(rig)
    (finding,) = check_folder(rig.folder)
    assert f"lost the write of commit {left + 1}" in finding


def test_a_repair_says_what_is_lost_and_the_next_start_serves(rig: Rig) -> None:
    lose_last_commit(rig)
    (told,) = repair_folder(rig.folder).told
    assert "lacks the last commit" in told
    rig = again(rig)
    assert bodies(rig.pop(10)) == ["first", "second", "third"]
    rig.core.close()
    assert check_folder(rig.folder) == []


def test_an_operator_who_wants_the_older_file_removes_the_note(rig: Rig) -> None:
    lose_last_commit(rig)
    (rig.folder / COMMIT_FILE).unlink()
    assert check_folder(rig.folder) == []
    assert bodies(again(rig).pop(10)) == ["first", "second", "third"]


def test_a_stopped_store_starts_again_and_after_each_kill(rig: Rig) -> None:
    """A kill leaves the note of the last stop, which is older than the store by none, one, two or more commits."""
    for commits in range(5):
        rig.core.close()
        rig = again(rig)
        for number in range(commits):
            rig.send(f"m{number}")
        killed = rig.folder.with_name(f"killed-{commits}")
        shutil.copytree(rig.folder, killed)
        assert check_folder(killed) == []
        Rig(killed, FakeClock(rig.now)).core.close()
    rig.core.close()


def test_a_backup_a_compacted_and_a_repaired_file_are_sound(rig: Rig, tmp_path: Path) -> None:
    backup = tmp_path / "backup.mdb"
    with backup.open("wb") as file:
        rig.core.store.copy(file.fileno())
    rig.send("third")
    rig.core.close()
    shutil.copy(backup, rig.folder / DATA_FILE)
    assert check_folder(rig.folder) == []
    rig = again(rig)
    rig.send("after")
    rig.core.close()
    compact_folder(rig.folder)
    assert check_folder(rig.folder) == []
    repair_folder(rig.folder)
    assert check_folder(rig.folder) == []
    assert bodies(again(rig).pop(10)) == ["first", "second", "after"]


def test_an_older_copy_of_the_whole_folder_is_sound(rig: Rig) -> None:
    rig.core.close()
    shutil.copytree(rig.folder, older := rig.folder.with_name("older"))
    rig = again(rig)
    rig.send("third")
    rig.core.close()
    assert check_folder(older) == []
    assert bodies(Rig(older, FakeClock(rig.now)).pop(10)) == ["first", "second"]


@pytest.mark.parametrize("content", [b"", bytes(40), b"popmq 1 ", b"popmq 2 of a later release"])
def test_a_note_that_says_nothing_stops_nothing(rig: Rig, content: bytes) -> None:
    lose_last_commit(rig)
    (rig.folder / COMMIT_FILE).write_bytes(content)
    assert check_folder(rig.folder) == []
    again(rig).core.close()


def test_a_file_of_somebody_else_stays_as_it_is(rig: Rig) -> None:
    (rig.folder / COMMIT_FILE).write_text("a list of my commits")
    rig.core.close()
    assert (rig.folder / COMMIT_FILE).read_text() == "a list of my commits"
    again(rig).core.close()


@pytest.mark.parametrize("left", [0, PAGE // 2])
def test_a_start_on_a_file_that_was_emptied_after_a_stop_makes_no_new_store(rig: Rig, left: int) -> None:
    """As a backup that is copied to a full disk leaves it."""
    rig.core.close()
    data = rig.folder / DATA_FILE
    data.write_bytes(bytes(left))
    with pytest.raises(StartError, match=rf"no commit, and had some .* remove {COMMIT_FILE}"):
        again(rig)
    assert data.read_bytes() == bytes(left)
    (rig.folder / COMMIT_FILE).unlink()
    again(rig).core.close()


def test_a_folder_with_the_note_only_takes_a_new_store(rig: Rig) -> None:
    rig.core.close()
    for path in rig.folder.iterdir():
        if path.name != COMMIT_FILE:
            path.unlink()
    rig = again(rig)
    rig.pair()
    rig.core.close()
    assert check_folder(rig.folder) == []
