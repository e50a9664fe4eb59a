"""A broker that cannot start says why and what to do, ends with an exit code of its own, and harms nothing."""

from __future__ import annotations

import socket
from pathlib import Path

import lmdb
import pytest

from harness.broker_process import BrokerProcess
from harness.stubs import Stubs
from popmq_proto.v1 import popmq_pb2 as pb
from tests.crash.store import refused_start

pytestmark = pytest.mark.process


def serves(broker: BrokerProcess) -> bool:
    with Stubs(broker.endpoint) as stubs:
        stubs.admin.CreateTopic(pb.CreateTopicRequest(topic=pb.Topic(name="t")), timeout=10)
        return bool(stubs.admin.ListTopics(pb.ListTopicsRequest(), timeout=10).topics)


def test_a_data_folder_in_use_is_refused_and_its_user_goes_on(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as first:
        said = refused_start(tmp_path / "data")
        assert str(tmp_path / "data") in said
        assert "in use" in said
        assert str(first.pid) in said, "it names the process that holds the folder"
        assert serves(first)


def test_a_folder_is_free_again_once_its_broker_was_killed(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data").start()
    broker.kill()
    with broker:
        assert serves(broker)


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused_start(tmp_path / "data", port)
    assert str(port) in said
    assert "--port" in said, "it names the cure"


def test_the_port_of_another_popmq_is_refused_and_never_shared(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "first") as first:
        said = refused_start(tmp_path / "second", first.port)
        assert str(first.port) in said
        assert serves(first)


def test_a_refused_port_leaves_the_folder_usable(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "first") as first:
        refused_start(tmp_path / "second", first.port)
    with BrokerProcess(tmp_path / "second") as second:
        assert serves(second)


@pytest.mark.parametrize("stranger", ["holiday.jpg", "data.mdb"])
def test_a_folder_that_is_not_ours_is_refused_and_not_touched(tmp_path: Path, stranger: str) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / stranger).write_bytes(b"precious")
    said = refused_start(folder)
    assert str(folder) in said
    assert "--data" in said
    assert [path.name for path in folder.iterdir()] == [stranger]
    assert (folder / stranger).read_bytes() == b"precious"


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    assert str(tmp_path / "data") in refused_start(tmp_path / "data")


def test_a_data_file_that_is_not_one_is_refused_and_kept(tmp_path: Path) -> None:
    data_file = data_file_of(tmp_path / "data")
    data_file.write_bytes(b"not a store" * 1000)
    refused_start(tmp_path / "data")
    assert data_file.read_bytes() == b"not a store" * 1000


def test_a_store_of_a_newer_format_is_refused_and_kept(tmp_path: Path) -> None:
    data_file = data_file_of(tmp_path / "data")
    with lmdb.open(str(data_file), subdir=False, max_dbs=1) as store, store.begin(write=True) as change:
        meta = store.open_db(b"meta", change)
        change.put(b"format", (999).to_bytes(4, "big"), db=meta)
    said = refused_start(tmp_path / "data")
    assert "999" in said
    assert "format" in said


def data_file_of(folder: Path) -> Path:
    """The one large file of a data folder, whose broker was stopped."""
    with BrokerProcess(folder):
        pass
    (file,) = folder.glob("*.mdb")
    return file
