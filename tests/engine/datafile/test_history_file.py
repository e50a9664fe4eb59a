"""The file of the charts' numbers: replaced as a whole, never over what is not PopMQ's, and no harm if it fails."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from popmq_server.embedded.store.datafile import history_file
from popmq_server.embedded.store.datafile.history_file import HISTORY_FILE, HISTORY_NEW_FILE, HistoryFile

OWN = b"own "


@pytest.fixture
def file(tmp_path: Path) -> HistoryFile:
    return HistoryFile(tmp_path, lambda head: head.startswith(OWN))


def test_what_is_written_is_read_and_no_other_file_is_left(file: HistoryFile, tmp_path: Path) -> None:
    assert file.read() == b""
    for content in (OWN + bytes(100_000), OWN + b"shorter"):
        file.write(content)
        assert file.read() == content
    assert os.listdir(tmp_path) == [HISTORY_FILE]
    assert (tmp_path / HISTORY_FILE).stat().st_mode & 0o777 == 0o600


def text(path: Path) -> None:
    path.write_text("a text of somebody")


def link(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere")
    (path.parent / "elsewhere").write_bytes(OWN)


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("name", [HISTORY_FILE, HISTORY_NEW_FILE])
@pytest.mark.parametrize("make", [text, link, folder, pipe])
def test_what_popmq_has_not_written_stays_as_it_is(
    name: str, make: Callable[[Path], None], file: HistoryFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path / name)
    before = {path.name: path.lstat() for path in tmp_path.iterdir()}
    assert file.read() == b""
    file.write(OWN)
    after = {path.name: path.lstat() for path in tmp_path.iterdir()}
    assert {one: (stat.st_ino, stat.st_mtime_ns) for one, stat in before.items()} == {
        one: (stat.st_ino, stat.st_mtime_ns) for one, stat in after.items()
    }
    assert name in caplog.text


@pytest.mark.parametrize("left", [b"", bytes(512), OWN + b"a part"])
def test_what_a_power_cut_or_a_crash_left_is_replaced(left: bytes, file: HistoryFile, tmp_path: Path) -> None:
    (tmp_path / HISTORY_FILE).write_bytes(left)
    (tmp_path / HISTORY_NEW_FILE).write_bytes(left)
    file.write(OWN + b"new")
    assert file.read() == OWN + b"new"
    assert os.listdir(tmp_path) == [HISTORY_FILE]


class Usage(NamedTuple):
    free: int


def test_on_a_disk_that_is_nearly_full_nothing_is_written_and_the_log_says_so_once(
    file: HistoryFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(history_file.DISK_FREE_MIN))
    for _ in range(3):
        file.write(OWN)
    assert os.listdir(tmp_path) == []
    assert len(caplog.records) == 1


def test_a_write_that_fails_keeps_the_file_before_and_leaves_no_part(
    file: HistoryFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file.write(OWN + b"before")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fchown", fail)  # that one is allowed to fail
    file.write(OWN + b"next")
    monkeypatch.setattr(os, "rename", fail)
    file.write(OWN + b"never")
    assert "No space left on device" in caplog.text
    assert file.read() == OWN + b"next"
    assert os.listdir(tmp_path) == [HISTORY_FILE]


def test_nothing_is_written_into_a_folder_that_has_taken_the_place_of_ours(file: HistoryFile, tmp_path: Path) -> None:
    tmp_path.rename(aside := tmp_path.with_name("aside"))
    tmp_path.mkdir()
    file.write(OWN)
    assert (os.listdir(tmp_path), os.listdir(aside)) == ([], [])
