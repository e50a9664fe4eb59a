"""`popmq check --repair`: what can be read is kept, what was left out is reported, the old file stays."""

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded.fsck.compact import compact_folder
from popmq_server.embedded.fsck.repair import main, repair_folder
from popmq_server.embedded.store.datafile.layout import NUMBER
from popmq_server.embedded.store.folder import (
    DAMAGED_FILE,
    DATA_FILE,
    JOURNAL_FILE,
    LMDB_LOCK_FILE,
    LOCK_FILE,
)
from popmq_server.embedded.store.keys import U32, U64
from popmq_server.errors import StartError
from tests.engine.rig import DAY, Journaled, Rig, bodies, numbered
from tests.engine.traffic.data_files import PAGE, database, first_leaf, quarantine


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Topics a and b with groups; of each 10 messages are acked, 10 leased, 20 unread."""
    rig = Rig(tmp_path / "data")
    for name in "ab":
        rig.topic(name)
        rig.group("g" + name, max_attempts=5)
        rig.send(*numbered(name, 40), topic=name)
        rig.ack(rig.pop(10, topic=name, group="g" + name), group="g" + name)
        rig.pop(10, topic=name, group="g" + name)
    rig.core.close()
    return tmp_path / "data"


def damage(folder: Path, table: str, key: bytes, value: bytes) -> None:
    rig = Rig(folder)
    rig.write(lambda kv: kv.put(table, key, value))
    rig.core.close()


def left(folder: Path, name: str) -> list[str]:
    """What a group still gets."""
    rig = Rig(folder)
    rig.advance(DAY)
    found = bodies(rig.pop(100, topic=name, group="g" + name))
    rig.core.close()
    return sorted(found)


def test_a_limit_that_was_set_while_the_broker_ran_holds_after_a_repair(folder: Path) -> None:
    rig = Rig(folder)
    rig.run(ask.SetMaxSize(1 << 30))
    rig.core.close()
    assert repair_folder(folder).told == []
    assert check_folder(folder) == []
    rig = Rig(folder)
    assert rig.store.map_bytes == 1 << 30
    rig.core.close()


def test_a_compacted_store_without_its_meta_page_is_not_said_to_be_sound(folder: Path) -> None:
    """Its other meta page is that of an empty store."""
    compact_folder(folder)
    data = folder / DATA_FILE
    raw = bytearray(data.read_bytes())
    raw[PAGE : PAGE + 512] = bytes(512)
    data.write_bytes(raw)
    assert "no meta page with a commit" in repair_folder(folder).told[0]
    assert (folder / DAMAGED_FILE).read_bytes() == raw


def test_a_sound_store_comes_out_as_it_went_in(folder: Path) -> None:
    before = Rig(folder)
    rows = {name: before.read(name) for name in ("log", "cq", "ck", "due", "stat", "topic")}
    before.core.close()
    assert repair_folder(folder).told == []
    assert check_folder(folder) == []
    after = Rig(folder)
    assert {name: after.read(name) for name in rows} == rows
    after.core.close()
    assert (folder / DAMAGED_FILE).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("run", [repair_folder, compact_folder])
def test_files_made_by_root_belong_to_the_owner_of_the_store(folder: Path, run: Callable[[Path], object]) -> None:
    for path in (folder, *folder.iterdir()):
        os.chown(path, 1234, 1235)
    os.chmod(folder / DATA_FILE, 0o640)
    for name in (LOCK_FILE, LMDB_LOCK_FILE):
        (folder / name).unlink()
    run(folder)
    assert {(path.stat().st_uid, path.stat().st_gid) for path in folder.iterdir()} == {(1234, 1235)}
    assert {DATA_FILE, LOCK_FILE} <= {path.name for path in folder.iterdir()}
    assert (folder / DATA_FILE).stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_lock_file_that_is_a_link_gives_nothing_away(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("of root")
    os.chown(folder / DATA_FILE, 1234, 1235)
    (folder / LOCK_FILE).unlink()
    (folder / LOCK_FILE).symlink_to(tmp_path / "other")
    with pytest.raises(StartError, match=f"{LOCK_FILE} is a symbolic link"):
        repair_folder(folder)
    assert ((tmp_path / "other").stat().st_uid, (tmp_path / "other").read_text()) == (0, "of root")


def test_a_second_repair_keeps_the_damaged_file_of_the_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original = (folder / DATA_FILE).read_bytes()
    repaired = [repair_folder(folder).damaged]
    second = (folder / DATA_FILE).read_bytes()
    repaired.append(repair_folder(folder).damaged)
    assert repaired == [DAMAGED_FILE, f"{DAMAGED_FILE}.1"]
    assert [(folder / name).read_bytes() for name in repaired] == [original, second]
    assert main(folder) == 0
    assert capsys.readouterr().out.endswith(f"was written anew, the file before is {DAMAGED_FILE}.2\n")
    (folder / DATA_FILE).unlink()
    Rig(folder).core.close()  # these files do not make a foreign folder of it


@pytest.mark.slow
def test_damaged_settings_keep_what_can_be_read_and_the_messages(folder: Path) -> None:
    rig = Rig(folder)
    key, raw = next((key, raw) for key, raw in rig.read("group") if json.loads(raw)["name"] == "ga")
    rig.core.close()
    damage(folder, "group", key, raw.replace(b'"invisible_ms":', b'"invisible_ms"#'))
    with pytest.raises(StartError, match="popmq check --repair"):
        Rig(folder)
    (sentence,) = repair_folder(folder).told
    assert "settings of a group are damaged" in sentence
    mended = Rig(folder)
    group = next(group for group in mended.core.state.groups.values() if group.name == "ga")
    assert (group.max_attempts, group.invisible_ms) == (5, 60_000)
    mended.core.close()
    assert left(folder, "a") == sorted(list(numbered("a", 40))[10:])


def test_a_repair_makes_a_broken_name_again(folder: Path) -> None:
    damage(folder, "name", b"ta", U32.pack(99))
    assert any("found by the name" in sentence for sentence in check_folder(folder))
    assert any("restored: the name 'a'" in sentence for sentence in repair_folder(folder).told)
    assert len(left(folder, "a")) == 30


def test_a_checkpoint_that_cannot_be_read_takes_only_its_lease_along(folder: Path) -> None:
    rig = Rig(folder)
    key, raw = rig.read("ck")[0]
    rig.core.close()
    damage(folder, "ck", key, raw[:3])
    said = repair_folder(folder).told
    assert any("a CheckPoint that cannot be read" in sentence for sentence in said)
    assert any("a lease whose CheckPoint is gone" in sentence for sentence in said)
    assert sorted([len(left(folder, "a")), len(left(folder, "b"))]) == [20, 30]


@pytest.mark.slow
def test_a_damaged_page_takes_only_its_entries_along(folder: Path) -> None:
    rig = Rig(folder)
    rig.topic("wide")
    rig.write(quarantine)
    rig.core.close()
    with open(folder / DATA_FILE, "r+b") as file:
        page = first_leaf(file.fileno(), database(file.fileno(), b"quar")[0])
        file.seek(page.number * PAGE)
        file.write(NUMBER.pack(12345))
    assert any("is not a page of this tree" in sentence for sentence in check_folder(folder))
    assert any(f"page {page.number} is not" in sentence for sentence in repair_folder(folder).told)
    rescued = Rig(folder)
    assert 300 < len(rescued.read("quar")) < 500
    rescued.core.close()
    assert (len(left(folder, "a")), len(left(folder, "b"))) == (30, 30)


@pytest.mark.slow
def test_a_repair_that_ends_early_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (folder / DATA_FILE).read_bytes()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            repair_folder(folder)
    assert (folder / DATA_FILE).read_bytes() == before
    assert repair_folder(folder).told == []


@pytest.mark.parametrize("calls", [1, 2])
def test_a_repair_that_is_killed_while_it_swaps_the_files_leaves_a_data_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    before = (folder / DATA_FILE).read_bytes()
    real = {name: getattr(os, name) for name in ("replace", "link")}
    made: list[str] = []

    def counted(name: str) -> Callable[..., None]:
        def call(*given: object, **named: object) -> None:
            if len(made) == calls:
                raise KeyboardInterrupt
            made.append(name)
            real[name](*given, **named)

        return call

    with monkeypatch.context() as patch:
        for name in real:
            patch.setattr(os, name, counted(name))
        with pytest.raises(KeyboardInterrupt) if calls == 1 else contextlib.nullcontext():
            repair_folder(folder)
    assert made == ["link", "replace"][:calls]
    assert (folder / DAMAGED_FILE).read_bytes() == before
    assert ((folder / DATA_FILE).read_bytes() == before) is (calls == 1)
    assert (len(left(folder, "a")), len(left(folder, "b"))) == (30, 30)


def test_a_repair_works_on_a_file_system_without_hard_links(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refused)
    before = (folder / DATA_FILE).read_bytes()
    assert repair_folder(folder).told == []
    assert (folder / DAMAGED_FILE).read_bytes() == before
    assert len(left(folder, "a")) == 30


def test_a_folder_in_use_or_without_a_store_is_refused(folder: Path, tmp_path: Path) -> None:
    rig = Rig(folder)
    with pytest.raises(StartError, match="in use"):
        repair_folder(folder)
    rig.core.close()
    with pytest.raises(StartError, match="not a PopMQ data folder"):
        repair_folder(tmp_path / "none")


def test_a_repair_quarantines_a_message_whose_position_is_beyond_the_log(folder: Path) -> None:
    rig = Rig(folder)
    key, raw = rig.read("cq")[0]
    rig.write(lambda kv: kv.put("cq", key, raw[:-20] + U64.pack(1 << 60) + raw[-12:]))
    assert len(rig.pop(100, topic="a", group="ga")) == 19
    numbers = rig.numbers("ga", "a")
    assert (numbers.quarantined, numbers.dropped) == (1, 0)
    rig.core.close()


# ── The journal of a broker that was killed ──────────────────────────────────────────────────────────────────────────


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A broker that was killed: messages a and b are in its data file, c, and d in one record each of its journal."""
    rig = Journaled(tmp_path / "killed")
    rig.pair()
    rig.send("a", "b")
    rig.store.fold()
    rig.send("c")
    rig.send("d")
    rig.abandon()
    return tmp_path / "killed"


def received(folder: Path) -> list[str]:
    rig = Rig(folder)
    found = bodies(rig.pop())
    assert rig.findings() == []
    rig.core.close()
    return found


def test_a_repair_keeps_what_the_journal_has(killed: Path) -> None:
    repaired = repair_folder(killed)
    assert repaired.told == []
    assert (killed / f"{repaired.damaged}.journal").exists()
    assert received(killed) == ["a", "b", "c", "d"]


def test_a_repair_keeps_the_part_of_a_damaged_journal_before_the_damage(killed: Path) -> None:
    raw = bytearray((killed / JOURNAL_FILE).read_bytes())
    second = raw.index(b"PMQJ", 1)
    (killed / JOURNAL_FILE).write_bytes(bytes(raw[:second]) + bytes(raw[second:]).replace(b"d", b"e", 1))
    assert repair_folder(killed).told == []
    assert received(killed) == ["a", "b", "c"]


def test_a_repair_says_that_a_journal_was_damaged_in_its_middle(killed: Path) -> None:
    raw = bytearray((killed / JOURNAL_FILE).read_bytes())
    raw[raw.index(b"PMQJ", 1) // 2] ^= 1
    (killed / JOURNAL_FILE).write_bytes(raw)
    assert repair_folder(killed).told == ["popmq.journal is damaged: of its commit batches the first 0 are kept"]
    assert received(killed) == ["a", "b"]


def test_a_repair_leaves_out_the_journal_of_another_store(killed: Path, folder: Path) -> None:
    (folder / JOURNAL_FILE).write_bytes((killed / JOURNAL_FILE).read_bytes())
    told = repair_folder(folder).told
    assert told == ["popmq.journal is left out: it does not continue the data file, as far as that can be read"]
    assert len(left(folder, "a")) == 30
