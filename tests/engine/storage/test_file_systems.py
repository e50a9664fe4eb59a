"""A start looks at the file system of its data folder: one of a network is refused, others are warned of.

Only the kernel's list of mounts is replaced: the rest is a start as it is.
"""

import logging
import os
from pathlib import Path

import pytest

from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded.fsck.repair import repair_folder
from popmq_server.embedded.store.datafile import file_system
from popmq_server.embedded.store.store import Store
from popmq_server.errors import StartError
from tests.engine.rig import Rig

MAP_BYTES = 1 << 26
#: A line of another mount, whose number begins with the same digits, and one that is cut off.
OTHERS = "{number}1 1 0:1 / /elsewhere rw - ext4 /dev/sda1 rw\n7 1\n"


def mounted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, system: str, options: str = "rw") -> None:
    """From now on the kernel says that the mount of `tmp_path` is of this file system."""
    handle = os.open(tmp_path, os.O_RDONLY)
    number = Path(f"/proc/self/fdinfo/{handle}").read_text().partition("mnt_id:")[2].split()[0]
    os.close(handle)
    mounts = tmp_path / "mountinfo"
    line = f"{number} 27 0:39 / {tmp_path} rw,relatime shared:1 master:2 - {system} a\\040source {options}\n"
    mounts.write_text(OTHERS.format(number=number) + line)
    told = file_system.mount_of
    monkeypatch.setattr(file_system, "mount_of", lambda folder: told(folder, mounts))


def started(folder: Path, caplog: pytest.LogCaptureFixture, sync: str = "full") -> list[str]:
    """The warnings of a start."""
    with caplog.at_level(logging.WARNING, "popmq.store"):
        Store(folder, MAP_BYTES, sync).close()
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("system", ["nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "fuse.sshfs", "fuse.glusterfs"])
def test_a_folder_of_a_network_is_refused_by_name_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    mounted(monkeypatch, tmp_path, system)
    with pytest.raises(StartError, match=rf"is on {system}, a file system of a network.* with --data"):
        Store(tmp_path / "data", MAP_BYTES, "full")
    assert list((tmp_path / "data").iterdir()) == [], "a refusal makes no file"


def test_a_repair_there_is_refused_and_a_check_which_only_reads_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Rig(tmp_path / "data").core.close()
    mounted(monkeypatch, tmp_path, "nfs4")
    with pytest.raises(StartError, match="is on nfs4"):
        repair_folder(tmp_path / "data")
    assert check_folder(tmp_path / "data") == []


@pytest.mark.parametrize(("system", "told"), [("ext4", 0), ("xfs", 0), ("btrfs", 0), ("overlay", 1), ("tmpfs", 1)])
def test_what_goes_with_the_machine_or_the_container_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, system: str, told: int
) -> None:
    mounted(monkeypatch, tmp_path, system)
    warnings = started(tmp_path / "data", caplog)
    assert len(warnings) == told
    assert all(f"the data folder is on {system}: " in warning for warning in warnings)


def test_a_file_system_of_an_unknown_program_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mounted(monkeypatch, tmp_path, "fuse.mergerfs")
    (warning,) = started(tmp_path / "data", caplog)
    assert "is on fuse.mergerfs" in warning
    assert "popmq verify --scratch" in warning


@pytest.mark.parametrize(
    ("system", "option"),
    [("ext4", "nobarrier"), ("ext3", "barrier=0"), ("xfs", "volatile"), ("btrfs", "fsync=volatile")],
)
def test_a_mount_that_leaves_syncs_out_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, system: str, option: str
) -> None:
    mounted(monkeypatch, tmp_path, system, f"rw,data=ordered,{option}")
    (warning,) = started(tmp_path / "data", caplog)
    assert f"mounted with {option}: an OK may not survive a power cut" in warning


def test_a_broker_that_promises_no_disk_warns_of_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mounted(monkeypatch, tmp_path, "tmpfs", "rw,nobarrier")
    assert started(tmp_path / "data", caplog, sync="none") == []


def test_a_system_that_tells_no_mounts_refuses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told = file_system.mount_of
    monkeypatch.setattr(file_system, "mount_of", lambda folder: told(folder, tmp_path / "missing"))
    assert started(tmp_path / "data", caplog) == []


def test_the_kernel_tells_the_file_system_of_a_folder(tmp_path: Path) -> None:
    """Without a replaced list: /proc itself is a file system whose name is known."""
    if not Path("/proc/self/mountinfo").exists():
        pytest.skip("this system has no /proc")
    mount = file_system.mount_of(Path("/proc"))
    assert mount is not None
    assert mount.name == "proc"
