"""A damaged page may end a broker by a signal: once, for the next start reads every page and refuses."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from harness.broker_process import ROOT, BrokerProcess
from harness.stubs import Stubs
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.embedded.fsck.repair import repair_folder
from popmq_server.embedded.store.fault_note import NOTE_FILE
from popmq_server.embedded.store.folder import DATA_FILE
from popmq_verify.powercut import compile_shim
from tests.crash.bitrot import size_of_first_value
from tests.crash.store import broken_invariants, refused_start

pytestmark = pytest.mark.process

CHECK = "import sys; from popmq_server.embedded.fsck.check import main; main(sys.argv[1:])"
REPAIR = "import pathlib, sys; from popmq_server.embedded.fsck.repair import main; main(pathlib.Path(sys.argv[1]))"


@pytest.fixture
def broker(tmp_path: Path) -> BrokerProcess:
    """A stopped broker with two topics of one message, each on pages of its own."""
    broker = BrokerProcess(tmp_path / "data")
    with broker, Stubs(broker.endpoint) as stubs:
        for topic in ("first", "second"):
            stubs.admin.CreateTopic(pb.CreateTopicRequest(topic=pb.Topic(name=topic)), timeout=10)
            sent = pb.SendRequest(topic=topic, messages=[pb.Message(body=topic.encode() * 10_000)])
            stubs.broker.Send(sent, timeout=10)
    return broker


def first_body(broker: BrokerProcess, topic: str) -> bytes:
    with Stubs(broker.endpoint) as stubs:
        page = stubs.admin.Browse(pb.BrowseRequest(topic=topic, max_messages=1), timeout=10)
        return page.deliveries[0].message.body if page.deliveries else b""


def test_a_broker_that_a_damaged_page_ends_does_not_start_on_it_again_until_it_is_repaired(
    broker: BrokerProcess,
) -> None:
    with open(broker.data / DATA_FILE, "r+b") as file:
        file.seek(size_of_first_value(broker.data / DATA_FILE) + 3)
        file.write(b"\x40")  # 1 GiB more than it has
    broker.start()
    with pytest.raises(grpc.RpcError):
        first_body(broker, "first")
    assert -broker.wait_dead() in (signal.SIGBUS, signal.SIGSEGV)
    for _ in range(2):
        said = refused_start(broker.data)
        assert "log" in said
        assert "ended by a signal" in said
        assert "popmq check --repair" in said
    repair_folder(broker.data)
    with broker:
        broker.wait_log("all pages of the data file are sound")
        assert first_body(broker, "first") == b"first" * 10_000
        assert first_body(broker, "second") == b"second" * 10_000
    assert not (broker.data / NOTE_FILE).stat().st_size


def test_a_broker_killed_by_a_signal_reads_its_pages_once_and_serves(broker: BrokerProcess) -> None:
    broker.start()
    os.kill(broker.pid, signal.SIGSEGV)
    assert broker.wait_dead() == -signal.SIGSEGV
    assert (broker.data / NOTE_FILE).read_text().startswith("Fatal Python error: Segmentation fault")
    for _ in range(2):
        broker.start()
        assert first_body(broker, "first") == b"first" * 10_000
        broker.kill()
    assert broker.log.read_text().count("ended by a signal (Segmentation fault)") == 1
    assert broken_invariants(broker.data) == []


def test_a_page_that_the_disk_cannot_read_is_named_and_the_rest_is_rescued(broker: BrokerProcess) -> None:
    data = broker.data / DATA_FILE
    body = data.read_bytes().index(b"first" * 10_000)
    environment = os.environ | {
        "LD_PRELOAD": str(compile_shim(broker.data.parent)),
        "POPMQ_CUT_LOG": str(broker.data.parent / "cut.log"),
        "POPMQ_CUT_FOLDER": str(broker.data),
        "POPMQ_CUT_UNREADABLE": f"{body + 8_000}-{body + 8_001}",
    }
    for program in (CHECK, REPAIR):
        ended = subprocess.run(
            [sys.executable, "-c", program, str(broker.data)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "the disk cannot read" in ended.stdout, ended.stderr
        assert "Input/output error" in ended.stdout
    with broker:
        assert first_body(broker, "first") == b""
        assert first_body(broker, "second") == b"second" * 10_000
