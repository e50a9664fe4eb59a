"""A broker that cannot start says why and what to do, ends with an exit code of its own, and harms nothing."""

from pathlib import Path

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


def test_a_folder_is_free_again_once_its_broker_was_killed(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data").start()
    broker.kill()
    with broker:
        assert serves(broker)


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
