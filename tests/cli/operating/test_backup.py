"""`popmq backup`: a folder to start on, or a file from standard output; never a half one that looks whole."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import popmq
from harness.broker_process import BrokerProcess
from popmq.testing import Broker
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded_broker import EmbeddedBroker
from tests.cli.conftest import Cli, Done

MIB = 1 << 20
BACKUP = [sys.executable, "-c", "from popmq_cli.main import main; main()", "backup"]


def fill(client: popmq.Client, mib: int) -> None:
    for number in range(mib):
        client.send("orders", popmq.Message(bytes([number % 251]) * MIB))


@pytest.mark.slow
def test_a_backup_is_a_data_folder_that_a_broker_starts_on(run: Cli, client: popmq.Client, tmp_path: Path) -> None:
    client.send("orders", ["one", "two"])
    target = tmp_path / "backups" / "monday"
    done = run("backup", str(target))
    assert (done.code, done.out) == (0, "")
    assert done.err == f"{(target / 'popmq.mdb').stat().st_size:,} bytes written to {target}\n"
    assert sorted(path.name for path in target.iterdir()) == ["popmq.mdb"]
    assert (target / "popmq.mdb").stat().st_mode & 0o777 == 0o600
    assert check_folder(target) == []
    with EmbeddedBroker(target, sync="none") as restored, popmq.Client(restored.endpoint) as other:
        assert sorted(row.text() for row in other.pop("orders", "billing")) == ["one", "two"]


@pytest.mark.slow
def test_a_folder_that_has_a_store_is_not_overwritten(run: Cli, client: popmq.Client, tmp_path: Path) -> None:
    assert run("backup", str(tmp_path / "a")).code == 0
    before = (tmp_path / "a" / "popmq.mdb").read_bytes()
    done = run("backup", str(tmp_path / "a"))
    assert done.code == 2
    assert "is not overwritten" in done.err
    assert (tmp_path / "a" / "popmq.mdb").read_bytes() == before


def test_a_folder_that_cannot_be_made_is_a_sentence(run: Cli, client: popmq.Client, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("backup", str(tmp_path / "file" / "folder"))
    assert done.code == 1
    assert "cannot take the backup" in done.err


@pytest.mark.slow
def test_standard_output_gets_the_file_and_nothing_else(run: Cli, broker: Broker, client: popmq.Client) -> None:
    client.send("orders", "one")
    done = subprocess.run([*BACKUP, "-"], capture_output=True, check=True, timeout=60)
    assert len(done.stdout) % 4096 == 0
    assert done.stderr.decode() == f"{len(done.stdout):,} bytes written to standard output\n"


def test_a_refused_backup_leaves_no_file(run: Cli, client: popmq.Client, tmp_path: Path) -> None:
    done = run("backup", "--rate", "1KiB", str(tmp_path / "a"))
    assert done.code == 1
    assert "bytes_per_s" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_second_backup_into_a_folder_is_refused_while_the_first_is_written(
    run: Cli, client: popmq.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.send("orders", "one")
    target, second = tmp_path / "a", list[Done]()
    calls = type(client.broker)
    listen = calls.backup

    def beside(self: Any, write: Callable[[bytes], object], *rest: Any) -> int:
        """Once the first one has a piece, a second one begins, to which the broker gives one too."""
        monkeypatch.setattr(calls, "backup", lambda self, write, *rest: write(b"of another broker"))

        def written(piece: bytes) -> None:
            write(piece)
            if not second:
                second.append(run("backup", str(target)))

        return listen(self, written, *rest)

    monkeypatch.setattr(calls, "backup", beside)
    assert run("backup", str(target)).code == 0
    assert second[0].code == 1
    assert "another backup is being written into" in second[0].err
    assert [path.name for path in target.iterdir()] == ["popmq.mdb"]
    assert check_folder(target) == []


def test_a_folder_whose_backup_was_completed_meanwhile_is_not_overwritten(
    run: Cli, client: popmq.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a"

    def late(self: Any, write: Callable[[bytes], object], *_: Any) -> int:
        target.mkdir()
        (target / "popmq.mdb").write_bytes(b"complete")
        write(b"later")
        return 5

    monkeypatch.setattr(type(client.broker), "backup", late)
    done = run("backup", str(target))
    assert done.code == 2
    assert "is not overwritten" in done.err
    assert [path.name for path in target.iterdir()] == ["popmq.mdb"]
    assert (target / "popmq.mdb").read_bytes() == b"complete"


@pytest.mark.parametrize("name", ["popmq.mdb", "popmq.mdb.part"])
def test_a_backup_writes_over_nothing_of_others(run: Cli, client: popmq.Client, tmp_path: Path, name: str) -> None:
    client.send("orders", "one")
    elsewhere, target = tmp_path / "elsewhere", tmp_path / "a"
    elsewhere.write_text("of somebody")
    target.mkdir()
    file = target / name
    file.write_text("of somebody")
    assert run("backup", str(target)).code != 0
    assert file.read_text() == "of somebody"
    for link in (elsewhere, tmp_path / "nothing"):
        file.unlink()
        file.symlink_to(link)
        assert run("backup", str(target)).code != 0
        assert file.is_symlink()
    assert elsewhere.read_text() == "of somebody"
    assert not (tmp_path / "nothing").exists()


@pytest.mark.slow
@pytest.mark.process
def test_a_broker_killed_meanwhile_leaves_no_file_that_looks_whole(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, popmq.Client(broker.endpoint) as client:
        client.topics.create("orders")
        fill(client, 12)
        going = begun(broker, tmp_path / "copy")
        broker.kill()
        assert going.wait(60) == 3
    assert list((tmp_path / "copy").iterdir()) == []


@pytest.mark.slow
@pytest.mark.process
def test_a_client_killed_meanwhile_leaves_no_file_that_looks_whole_and_the_broker_goes_on(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, popmq.Client(broker.endpoint) as client:
        client.topics.create("orders")
        fill(client, 12)
        going = begun(broker, tmp_path / "copy")
        going.send_signal(signal.SIGKILL)
        assert going.wait(60) == -signal.SIGKILL
        assert [path.name for path in (tmp_path / "copy").iterdir()] == ["popmq.mdb.part"]
        client.send("orders", "after")
        done = subprocess.run(
            [*BACKUP, "--rate", "1GiB", "--endpoint", broker.endpoint, str(tmp_path / "copy")], check=False, timeout=60
        )
        assert done.returncode == 0
    assert check_folder(tmp_path / "copy") == []


def begun(broker: BrokerProcess, target: Path) -> subprocess.Popen[bytes]:
    """A slow backup of which something has come."""
    command = [*BACKUP, "--rate", "1MiB", "--endpoint", broker.endpoint, str(target)]
    going = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    part = target / "popmq.mdb.part"
    while not (part.exists() and part.stat().st_size):
        assert going.poll() is None
        os.sched_yield()
    return going
