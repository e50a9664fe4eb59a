"""A disk or a map without room refuses what needs room, goes on with what frees it, and recovers by itself."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from grpc_status import rpc_status

from harness.broker_process import BrokerProcess
from harness.stubs import Stubs
from popmq_proto.v1 import popmq_pb2 as pb
from tests.crash.store import broken_invariants

pytestmark = pytest.mark.process


MIB = 1 << 20
DISK_MIB = 400
SOON_S = 180.0


class Disk:
    """A small file system of its own, which can be filled up to any amount of room."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def leave(self, mib: int) -> None:
        """Fills the disk until only so much is free."""
        self._ballast.unlink(missing_ok=True)
        free = os.statvfs(self.folder).f_bavail * os.statvfs(self.folder).f_bsize
        with self._ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(free - mib * MIB, 1))

    def empty(self) -> None:
        self._ballast.unlink(missing_ok=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command on this machine")
    if mounted.returncode:
        pytest.skip(f"this user may not mount a small disk: {mounted.stderr.strip()}")
    yield Disk(folder)
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def broker(disk: Disk) -> Iterator[BrokerProcess]:
    with BrokerProcess(disk.folder / "data") as broker:
        yield broker


@pytest.fixture
def stubs(broker: BrokerProcess) -> Iterator[Stubs]:
    with Stubs(broker.endpoint) as stubs:
        stubs.admin.CreateTopic(pb.CreateTopicRequest(topic=pb.Topic(name="t")))
        stubs.admin.CreateGroup(pb.CreateGroupRequest(group=pb.Group(name="g")))
        yield stubs


def send(stubs: Stubs, count: int = 20, size: int = 1024) -> None:
    messages = [pb.Message(body=os.urandom(size)) for _ in range(count)]
    stubs.broker.Send(pb.SendRequest(topic="t", messages=messages), timeout=10)


def pop(stubs: Stubs, count: int = 20) -> list[str]:
    """The handles of so many messages."""
    answer = stubs.broker.Pop(pb.PopRequest(topic="t", group="g", max_messages=count), timeout=10)
    return [delivery.handle for delivery in answer.deliveries]


def ack(stubs: Stubs, handles: list[str]) -> None:
    answer = stubs.broker.Ack(pb.AckRequest(group="g", handles=handles), timeout=10)
    assert not any(result.error.code for result in answer.results)


def refusal(call: Callable[[], object]) -> pb.ErrorInfo | None:
    """Why a call was refused; None when it was not. An error without details is raised."""
    try:
        call()
    except grpc.RpcError as error:
        info = pb.ErrorInfo()
        status = rpc_status.from_call(error)  # type: ignore[arg-type]  # what a stub raises is a Call too
        if status is None or not status.details[0].Unpack(info):
            raise
        return info
    return None


def soon(call: Callable[[], object], code: int | None) -> None:
    """Waits until a call is refused with a code, or is not refused any more."""
    deadline = time.monotonic() + SOON_S
    while True:
        info = refusal(call)
        if (info.code if info else None) == code:
            return
        assert time.monotonic() < deadline, f"still {info} after {SOON_S} s"
        time.sleep(0.05)


def test_a_nearly_full_disk_refuses_sends_and_goes_on_with_pops_and_acks(disk: Disk, stubs: Stubs) -> None:
    send(stubs, 100)
    disk.leave(mib=200)
    soon(lambda: send(stubs), pb.STORAGE_FULL)
    info = refusal(lambda: send(stubs))
    assert info is not None
    assert info.retryable
    assert info.action
    for _ in range(5):
        handles = pop(stubs)
        assert len(handles) == 20
        ack(stubs, handles)
    disk.empty()
    soon(lambda: send(stubs), None)
    assert len(pop(stubs)) == 20


def test_an_all_but_full_disk_refuses_pops_too_and_still_takes_acks(disk: Disk, stubs: Stubs) -> None:
    send(stubs, 100)
    handles = pop(stubs, 60)
    disk.leave(mib=30)
    soon(lambda: send(stubs), pb.STORAGE_FULL)
    info = refusal(lambda: pop(stubs))
    assert info is not None
    assert info.code == pb.STORAGE_FULL
    ack(stubs, handles[:30])
    extend = [pb.InvisibleTimeChange(handle=handle, extend=pb.Extend(invisible_ms=60_000)) for handle in handles[30:]]
    changed = stubs.broker.ChangeInvisibleTime(pb.ChangeInvisibleTimeRequest(group="g", changes=extend), timeout=10)
    assert all(result.visible_ms for result in changed.results)
    ack(stubs, handles[30:])
    disk.empty()
    soon(lambda: ack(stubs, pop(stubs, 40)), None)
    assert stubs.group_stats("t", "g").acked == 100


def test_a_disk_without_a_byte_takes_acks_loses_nothing_and_serves_again_by_itself(
    disk: Disk, broker: BrokerProcess, stubs: Stubs
) -> None:
    send(stubs, 100)
    handles = pop(stubs, 60)
    disk.leave(mib=0)
    soon(lambda: send(stubs), pb.STORAGE_FULL)
    for place in range(30):  # each is a commit, and each commit needs pages
        ack(stubs, handles[place : place + 1])
    disk.empty()
    soon(lambda: send(stubs), None)
    ack(stubs, handles[30:])
    ack(stubs, pop(stubs, 100))
    stats = stubs.group_stats("t", "g")
    assert (stats.acked, stats.ready, stats.in_flight, stats.retry) == (120, 0, 0, 0)
    assert broker.stop() == 0
    assert broken_invariants(broker.data) == []


@pytest.mark.mechanism("D.45")
def test_a_full_map_refuses_sends_takes_acks_and_recovers_when_a_topic_is_deleted(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data", "--max-size", str(32 * MIB)) as broker,
        Stubs(broker.endpoint) as stubs,
    ):
        for topic in ("t", "old"):
            stubs.admin.CreateTopic(pb.CreateTopicRequest(topic=pb.Topic(name=topic)))
        stubs.admin.CreateGroup(pb.CreateGroupRequest(group=pb.Group(name="g")))
        send(stubs, 100)
        old = pb.SendRequest(topic="old", messages=[pb.Message(body=os.urandom(64 << 10)) for _ in range(8)])
        soon(lambda: stubs.broker.Send(old, timeout=10), pb.STORAGE_FULL)
        for _ in range(5):
            ack(stubs, pop(stubs))
        stubs.admin.DeleteTopic(pb.DeleteTopicRequest(name="old"))
        soon(lambda: send(stubs), None)
        assert broker.stop() == 0
        assert broken_invariants(broker.data) == []
