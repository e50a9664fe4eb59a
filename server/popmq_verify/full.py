"""A store without room: sends are refused with the reason, acks and deletes work, and no answered message is lost.

small_file     the data file has reached --max-size          room is made by deleting a topic
no_byte_left   the file system has no free block             room is made by removing another file
"""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from google.rpc import status_pb2

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.embedded.fsck.check import check_folder
from popmq_verify.judging.checker import Finding
from popmq_verify.load.stubs import Stubs
from popmq_verify.process.broker_process import BrokerProcess

MIB = 1 << 20
#: The data file that is filled, and the file system: the broker refuses sends below 256 MiB of free disk.
FILE_MIB, DISK_MIB = 32, 400
MESSAGES, BATCH = 200, 20
#: Seconds in which a broker notices that there is no room, or room again.
SOON_S = 30.0
TOPIC, OLD, GROUP = "t", "old", "g"


def small_file(data: Path, flags: Sequence[str], figures: dict[str, int]) -> list[Finding]:
    """Fills a data file of FILE_MIB, acks while it is full, makes room by deleting a topic."""
    data.parent.mkdir(parents=True)
    broker = BrokerProcess(data, *_without(flags, "--max-size"), "--max-size", str(FILE_MIB * MIB))

    def fill(stubs: Stubs) -> None:
        large = pb.SendRequest(topic=OLD, messages=[pb.Message(body=os.urandom(64 << 10)) for _ in range(8)])
        figures["messages that filled the data file"] = 8 * _until(lambda: stubs.broker.Send(large, timeout=10), True)

    def make_room(stubs: Stubs) -> None:
        stubs.admin.DeleteTopic(pb.DeleteTopicRequest(name=OLD), timeout=10)

    return _judged(broker, fill, make_room, "data file", figures)


def no_byte_left(folder: Path, flags: Sequence[str], figures: dict[str, int]) -> list[Finding]:
    """Fills a small file system to its last byte with a file that is not the broker's."""
    ballast = folder / "ballast"

    def fill(stubs: Stubs) -> None:
        take_all(ballast)
        _until(lambda: _send(stubs, ["probe"]), True)

    return _judged(BrokerProcess(folder / "data", *flags), fill, lambda _: ballast.unlink(), "disk", figures)


def take_all(ballast: Path) -> None:
    """Takes all room of a file system for a file. btrfs gives less than it says is free, and never all in one piece."""
    free = os.statvfs(ballast.parent)
    piece, at = free.f_bavail * free.f_bsize, 0
    with ballast.open("wb") as file:
        while piece >= free.f_bsize:
            try:
                os.posix_fallocate(file.fileno(), at, piece)
                at += piece
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            piece //= 2


@contextmanager
def small_disk(folder: Path) -> Iterator[str]:
    """Mounts a file system of DISK_MIB in memory; yields why it cannot, or ""."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        yield "this machine has no mount command"
        return
    if done.returncode:
        yield "this user may not mount one; root may"
        return
    try:
        yield ""
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _judged(
    broker: BrokerProcess,
    fill: Callable[[Stubs], None],
    make_room: Callable[[Stubs], None],
    what: str,
    figures: dict[str, int],
) -> list[Finding]:
    """Runs one scenario and returns its findings.

        send MESSAGES ─▶ pop half ─▶ fill() ─▶ ack them one by one ─▶ make_room() ─▶ send again ─▶ pop and ack the rest

    Every message whose send was answered must be delivered, and none twice after its ack was answered. `what` names the
    full thing in findings and figures.
    """
    findings: list[Finding] = []
    sent = [f"m{number}" for number in range(MESSAGES)]
    got: list[str] = []
    with broker, Stubs(broker.endpoint) as stubs:
        for topic in (TOPIC, OLD):
            stubs.admin.CreateTopic(pb.CreateTopicRequest(topic=pb.Topic(name=topic, queues=1)), timeout=10)
        stubs.admin.CreateGroup(pb.CreateGroupRequest(group=pb.Group(name=GROUP)), timeout=10)
        for first in range(0, MESSAGES, BATCH):
            _send(stubs, sent[first : first + BATCH])
        held = _pop(stubs, MESSAGES // 2)
        fill(stubs)
        got += [message_id for message_id, _ in held]
        for _, handle in held:  # each is a commit of its own, and each commit needs pages
            _ack(stubs, [handle])
        figures[f"acks while the {what} was full"] = len(held)
        make_room(stubs)
        after = _until(lambda: _send(stubs, ["after"]), False)
        figures[f"tries until the {what} took messages again"] = after + 1
        while rest := _pop(stubs, MESSAGES):
            got += [message_id for message_id, _ in rest]
            _ack(stubs, [handle for _, handle in rest])
    findings += [("lost", f"{one} was answered before the {what} was full, and is gone") for one in {*sent} - {*got}]
    twice = {one for one in got if got.count(one) > 1} - {"probe"}
    findings += [("after ack", f"{one} was delivered again after its ack was answered") for one in twice]
    if broker.exit_code:
        findings.append(("store", f"the broker ended with code {broker.exit_code}"))
    return findings + [("store", problem) for problem in check_folder(broker.data)]


def _send(stubs: Stubs, ids: list[str]) -> None:
    """Sends messages of some 100 bytes with these ids. Raises RpcError."""
    messages = [pb.Message(message_id=one, body=one.encode() * 50) for one in ids]
    stubs.broker.Send(pb.SendRequest(topic=TOPIC, messages=messages), timeout=10)


def _pop(stubs: Stubs, count: int) -> list[tuple[str, str]]:
    """(id, handle) of at most `count` messages."""
    request = pb.PopRequest(topic=TOPIC, group=GROUP, max_messages=count, invisible_ms=600_000)
    answer = stubs.broker.Pop(request, timeout=10)
    return [(delivery.message.message_id, delivery.handle) for delivery in answer.deliveries]


def _ack(stubs: Stubs, handles: list[str]) -> None:
    """Acks deliveries. Raises RuntimeError if one is refused: acks must work while the store is full."""
    answer = stubs.broker.Ack(pb.AckRequest(group=GROUP, handles=handles), timeout=10)
    if any(result.error.code for result in answer.results):
        raise RuntimeError(f"an ack was refused: {answer.results}")


def _until(call: Callable[[], object], full: bool) -> int:
    """Repeats a call until it is refused with STORAGE_FULL (`full`) or succeeds; returns the number of tries before."""
    deadline, count = time.monotonic() + SOON_S, 0
    while True:
        try:
            call()
        except grpc.RpcError as error:
            if _code(error) != pb.STORAGE_FULL:
                raise
            if full:
                return count
        else:
            if not full:
                return count
        count += 1
        if time.monotonic() > deadline:
            wanted = "is never refused with STORAGE_FULL" if full else "is refused although there is room again"
            raise RuntimeError(f"a send {wanted}, for {SOON_S:g} s")
        if not full:
            time.sleep(0.05)


def _code(error: Any) -> int:
    """The popmq.v1.Code in the details of a failed call; 0 if it has none."""
    status, info = status_pb2.Status(), pb.ErrorInfo()
    status.ParseFromString(dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b""))
    if status.details:
        status.details[0].Unpack(info)
    return int(info.code)


def _without(flags: Sequence[str], name: str) -> list[str]:
    """The flags without one and its value."""
    at = list(flags).index(name) if name in flags else len(flags)
    return [*flags[:at], *flags[at + 2 :]]
