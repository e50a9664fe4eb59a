"""Backup: a copy of a running broker that holds what was answered before it began, and never a half one."""

import asyncio
import errno
import hashlib
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

import popmq
from popmq import errors
from popmq._calls.backup import Backup
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded.loop import backup_stream as backups
from popmq_server.embedded.store.backup import Copy
from popmq_server.embedded.store.lmdb import DiskFault, MapFull
from popmq_server.embedded.store.store import Store
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.errors import Refused, StartError
from tests.engine.rig import Rig, bodies, sending
from tests.wire.stubs import Stubs, refusal

FAST = 1 << 40
MIB = 1 << 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "data", sync="none") as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[popmq.Client]:
    with popmq.Client(broker.endpoint) as client:
        client.topics.create("orders", queues=2)
        client.groups.create("billing")
        yield client


def fill(client: popmq.Client, mib: int) -> None:
    for number in range(mib):
        client.send("orders", popmq.Message(bytes([number % 251]) * MIB, message_id=f"large-{number}"))


def copied(client: popmq.Client, folder: Path, **how: Any) -> Path:
    folder.mkdir()
    with open(folder / "popmq.mdb", "wb") as file:
        size = client.broker.backup(file.write, **{"rate": FAST, **how})
    assert size == (folder / "popmq.mdb").stat().st_size
    return folder


class Traffic:
    """Clients that send, pop and ack until `stop`; knows what was answered so far."""

    def __init__(self, endpoint: str) -> None:
        self.sent: list[str] = []
        self.acked: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=work, args=(endpoint,)) for work in (self._send, self._consume)]
        for thread in self._threads:
            thread.start()

    def _send(self, endpoint: str) -> None:
        with popmq.Client(endpoint) as client:
            while not self._stop.is_set():
                names = [f"m{len(self.sent) + step}" for step in range(20)]
                client.send("orders", [popmq.Message(name, message_id=name) for name in names])
                self.sent += names

    def _consume(self, endpoint: str) -> None:
        with popmq.Client(endpoint) as client:
            while not self._stop.is_set():
                rows = client.pop("orders", "billing", 8, wait=0.05, invisible=3600)
                client.ack(rows)
                self.acked += [row.text() for row in rows]

    def until(self, messages: int) -> None:
        while len(self.sent) < messages or len(self.acked) < messages // 4:
            self._stop.wait(0.005)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.slow
def test_a_backup_under_load_is_sound_and_has_all_messages_answered_before_it(
    broker: EmbeddedBroker, client: popmq.Client, tmp_path: Path
) -> None:
    traffic = Traffic(broker.endpoint)
    try:
        traffic.until(200)
        sent, acked = list(traffic.sent), list(traffic.acked)
        folder = copied(client, tmp_path / "copy", rate=MIB)
        assert len(traffic.sent) > len(sent), "clients went on meanwhile"
    finally:
        traffic.stop()
    assert check_folder(folder) == []
    with EmbeddedBroker(folder, sync="none") as restored, popmq.Client(restored.endpoint) as other:
        stored = {
            row.message_id for queue in (0, 1) for row in other.messages.browse("orders", queue, 0, 4096).deliveries
        }
        assert set(sent) <= stored
        again = [row.text() for row in other.consume("orders", "billing", until_idle=0.2)]
        assert not set(again) & set(acked), "an acked message never comes again"


def test_the_pieces_are_the_file_and_the_end_proves_it(stubs: Stubs) -> None:
    *pieces, last = stubs.admin.Backup(pb.BackupRequest(bytes_per_s=FAST))
    data = b"".join(piece.data for piece in pieces)
    assert (last.end.bytes, last.end.sha256) == (len(data), hashlib.sha256(data).digest())
    assert pieces[0].about_bytes > 0
    assert not any(piece.HasField("end") for piece in pieces)


@pytest.mark.slow
def test_a_client_that_leaves_ends_the_copy(broker: EmbeddedBroker, client: popmq.Client) -> None:
    fill(client, 6)

    def leave(_: bytes) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.broker.backup(leave, rate=MIB)
    assert client.broker.backup(lambda data: None, rate=FAST) > 6 * MIB, "the next one is not refused for long"


def test_one_backup_at_a_time(client: popmq.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker sends the second piece only after the second backup was refused."""
    fill(client, 4)
    refused: list[errors.PopMQError] = []
    pieces, answered = itertools.count(), threading.Event()

    async def until_refused(_: float) -> None:
        if next(pieces) > 0:
            await asyncio.to_thread(answered.wait, 30)

    monkeypatch.setattr(backups, "pause", until_refused)

    def second(_: bytes) -> None:
        if not refused:
            with pytest.raises(errors.Busy) as error:
                client.broker.backup(lambda data: None)
            refused.append(error.value)
            answered.set()

    client.broker.backup(second, rate=FAST)
    assert "another backup is running" in str(refused[0])


def test_a_system_without_a_process_for_the_copy_is_busy(client: popmq.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    with monkeypatch.context() as full:
        full.setattr("subprocess.Popen", refuse)
        with pytest.raises(errors.Busy, match="no process can be started for the copy"):
            client.broker.backup(lambda data: None)
    assert client.broker.backup(lambda data: None, rate=FAST) > 0


@pytest.mark.slow
def test_the_rate_is_bounded(client: popmq.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(client, 4)
    pauses: list[float] = []

    async def noted(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(backups, "pause", noted)
    monkeypatch.setattr(backups, "stopwatch", lambda: sum(pauses))  # time passes in the pauses only
    pieces: list[int] = []
    client.broker.backup(lambda data: pieces.append(len(data)), rate=2 * MIB)
    assert pauses == pytest.approx([0.0, *(size / (2 * MIB) for size in pieces[:-1])])


@pytest.mark.parametrize("rate", [-1, 1, MIB - 1, (1 << 40) + 1])
def test_a_rate_out_of_range_is_refused(stubs: Stubs, rate: int) -> None:
    refused = refusal(lambda request, timeout: list(stubs.admin.Backup(request)), pb.BackupRequest(bytes_per_s=rate))
    assert (refused.code, refused.info.field) == ("INVALID_FIELD", "bytes_per_s")


@pytest.mark.slow
def test_a_backup_that_ends_half_way_is_an_error_of_the_client(
    client: popmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client, 4)

    listen = client._wire.listen

    def cut(method: str, request: Any, take: Any) -> None:
        pieces: list[Any] = []
        listen(method, request, pieces.append)
        for piece in pieces[:2]:
            take(piece)

    monkeypatch.setattr(client._wire, "listen", cut)
    with pytest.raises(errors.Incomplete, match="not whole"):
        client.broker.backup(lambda data: None, rate=FAST)


# ── What a backup may cost the broker ────────────────────────────────────────────────────────────────────────────────


def rest(copy: Copy) -> bytes:
    """What was not read yet."""
    try:
        return b"".join(iter(copy.read, b""))
    finally:
        copy.close()


def large(folder: Path, map_bytes: int = 1 << 28) -> Rig:
    rig = Rig(folder, map_bytes=map_bytes)
    rig.topic()
    rig.group()
    for number in range(8):
        rig.send(str(number) * MIB)
    return rig


def test_a_backup_that_its_client_does_not_read_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = large(tmp_path)
    monkeypatch.setattr(backups, "STALL_S", 0.0)
    monkeypatch.setattr(backups, "WATCH_S", 0.001)

    async def used_pages() -> int:
        return 1

    async def take() -> None:
        async for _ in backups.backup(rig.store, FAST, used_pages):
            await asyncio.to_thread(threading.Event().wait, 0.01)

    with pytest.raises(Refused, match="the receiver took no piece"):
        asyncio.run(take())
    assert rig.store.copies == []
    rig.core.close()


def test_a_copy_may_let_the_file_grow_by_half_of_what_is_left(tmp_path: Path) -> None:
    rig = large(tmp_path, 32 * MIB)
    copy = Copy(rig.store)
    assert copy.cost() == ""
    for number in range(14):
        rig.ack(rig.pop(1))
        rig.send(str(number) * MIB)
        if copy.cost():
            break
    assert "the store grew by" in copy.cost()
    copy.end(copy.cost())
    with pytest.raises(DiskFault, match="the store grew by"):
        rest(copy)
    assert rig.store.copies == []
    rig.core.close()


@pytest.mark.slow
def test_a_backup_that_its_client_does_not_read_does_not_hold_the_writer(tmp_path: Path) -> None:
    rig = large(tmp_path)
    copy = Copy(rig.store)
    first = copy.read()
    rows = rig.pop(1)
    assert rig.ack(rows) == [None]
    rig.send("later")
    rig.run(*[])  # a group that wrote nothing ends its transaction by an abort
    assert rig.pop(1, "t", "g", queues=(0,)) != []
    copied_to = tmp_path / "copy"
    copied_to.mkdir()
    (copied_to / "popmq.mdb").write_bytes(first + rest(copy))
    assert check_folder(copied_to) == []
    rig.core.close()
    other = Rig(copied_to)
    assert "later" not in bodies(other.pop(32))
    other.core.close()


def test_a_copying_process_that_was_killed_is_reported_and_holds_nothing(tmp_path: Path) -> None:
    rig = large(tmp_path)
    copy = Copy(rig.store)
    copy.read()
    copy._process.kill()
    with pytest.raises(DiskFault, match="ended with -9"):
        rest(copy)
    assert rig.store._env.info()["num_readers"] <= 1
    assert "popmq" not in rig.store._env.readers()
    rig.core.close()


@pytest.mark.slow
def test_a_commit_that_finds_no_room_ends_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = large(tmp_path)
    copy = Copy(rig.store)

    def full(*_: Any) -> None:
        raise MapFull

    with monkeypatch.context() as patch:
        patch.setattr("popmq_server.embedded.store.lmdb.Transaction.commit", full)
        patch.setattr("popmq_server.embedded.store.journal.changes.JournaledTransaction.commit", full)
        rig.commit(sending("x"))
    with pytest.raises(DiskFault, match="found no room"):
        rest(copy)
    rig.send("after")
    rig.core.close()


def test_a_broker_that_stops_ends_the_copy_first(tmp_path: Path) -> None:
    rig = large(tmp_path)
    copy = Copy(rig.store)
    rig.core.close()
    with pytest.raises(DiskFault, match="the broker is stopping"):
        rest(copy)


# ── Half files ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_copy_that_was_cut_short_at_any_place_is_refused_by_a_start_and_by_check(tmp_path: Path) -> None:
    rig = large(tmp_path / "data")
    data = rest(Copy(rig.store))
    rig.core.close()
    folder = tmp_path / "part"
    folder.mkdir()
    for kept in (8192, MIB, len(data) // 2, len(data) - 4096):
        (folder / "popmq.mdb").write_bytes(data[:kept])
        for opened in (lambda: Store(folder, 1 << 28, "none"), lambda: check_folder(folder)):
            with pytest.raises(StartError, match="is truncated"):
                opened()
    (folder / "popmq.mdb").write_bytes(data)
    assert check_folder(folder) == []
    whole = Rig(folder)
    assert bodies(whole.pop(1))[0][0] == "0"
    whole.core.close()


def test_a_store_that_is_new_or_was_killed_at_once_is_not_taken_for_a_partial_backup(tmp_path: Path) -> None:
    for _ in range(3):
        Store(tmp_path, 1 << 28, "none").close()


@pytest.mark.slow
def test_the_stream_ends_with_an_error_when_the_broker_stops(client: popmq.Client, broker: EmbeddedBroker) -> None:
    fill(client, 6)

    def stop(_: bytes) -> None:
        broker.stop()

    with pytest.raises((errors.PopMQError, grpc.RpcError)):
        client.broker.backup(stop, rate=MIB)


@pytest.mark.parametrize("data", [b"", b"longer"])
def test_a_backup_without_a_byte_or_with_fewer_than_were_counted_is_not_whole(data: bytes) -> None:
    coming = Backup(bytearray().extend, None)
    coming.take(pb.BackupResponse(end=pb.BackupEnd(bytes=len(data), sha256=hashlib.sha256(data).digest())))
    with pytest.raises(errors.Incomplete, match="0 bytes came"):
        coming.whole()


def test_a_copy_keeps_its_pipe_while_a_thread_reads_it(tmp_path: Path) -> None:
    """The number of a pipe that is closed goes to that of the next copy: the thread would read from that one."""
    rig = large(tmp_path)
    copy, happened = Copy(rig.store), list[str]()
    pipe = copy._process.stdout

    def close() -> None:
        copy.close()
        happened.append("closed")

    closer = threading.Thread(target=close)

    class Slow:
        """Ends its first read a while after the copy was ended: longer than a close takes."""

        def read(self, size: int) -> bytes:
            closer.start()
            closer.join(0.2)
            happened.append("read")
            return b""

        def close(self) -> None:
            assert pipe
            pipe.close()

    copy._process.stdout = Slow()  # type: ignore[assignment]  # all that is asked of a pipe
    with pytest.raises(DiskFault, match="its reader has gone"):
        copy.read()
    closer.join()
    assert happened == ["read", "closed"]
    rig.core.close()
