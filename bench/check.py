"""Counts the work that a message causes in the broker, and compares it with the budget in bench/budget.toml.

    make bench-check                        a line for each leg; exit code 1 above the budget
    python -m bench.check --write           writes today's counts as the budget

Requests go one after the other, as frames in memory, through the transport `python`, the handlers, the writer and LMDB.
Nothing is timed: it counts calls of Python functions of the server and of its transport, and of the C functions that
they call, puts and deletes in LMDB, commits (with sync = full each is an fsync), and the most memory that one request
takes. On a busy machine the writer sometimes wakes once more, so each leg is counted in several rounds, and the round
with the fewest calls is compared; and the writer looks at the free space of the disk by the number of its commits only,
not by time as well.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import math
import sys
import tempfile
import threading
import tomllib
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from unittest import mock

from harness import attacks
from harness.attacks import GREETING
from harness.broker_process import ROOT
from popmq_http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEAD,
    HEAD_BYTES,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    U32,
    WINDOW_UPDATE,
    frame,
    settings,
)
from popmq_http2.server.connection import Connection
from popmq_proto.rocketmq import definition_pb2 as v2
from popmq_proto.rocketmq import service_pb2 as v2rpc
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded.state import space
from popmq_server.embedded.store.journal.changes import JournaledTransaction
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.writer import lone
from popmq_server.options import Options
from popmq_server.process.serving import Serving

BUDGET = ROOT / "bench" / "budget.toml"
#: Whose calls count: the server, and the transport under it.
COUNTED_CODE = (str(ROOT / "server"), str(ROOT / "http2"))
#: Of a commit through LMDB, and of one through the journal, which deletes as the other does.
PUTS = Transaction.put, JournaledTransaction.put, JournaledTransaction.extend, Transaction.delete
COMMITS = Transaction.commit, JournaledTransaction.commit
BROKER, ADMIN, V2 = "/popmq.v1.Broker/", "/popmq.v1.Admin/", "/apache.rocketmq.v2.MessagingService/"
CLIENT = ((b"x-mq-client-id", b"check@1@0@1"), (b"x-mq-language", b"GO"))
BODY = b"x" * 1024
BORN_MS = 1_700_000_000_000
#: Requests of a leg before the counted ones, and counted ones: by then tables, caches and queues have their final size.
WARM, COUNTED = 8, 16
#: Rounds of a leg. Work that returns every few requests is in each round, so it counts.
ROUNDS = 4
#: The share by which a leg may exceed its budget: versions of Python and protobuf differ slightly.
TOLERANCE = 1.02
#: Memory depends on when tables grow, too.
MEMORY_TOLERANCE = 1.15
FRAME_BYTES = 16 << 10


class Counts(NamedTuple):
    """For each message; `bytes` is the most that one request has allocated at a time."""

    calls: float
    puts: float
    commits: float
    bytes: float

    def above(self, budget: Counts) -> list[str]:
        """A text for each count that exceeds the budget."""
        pairs = zip(self._fields, self, budget, strict=True)
        return [
            f"{name}: {value:g}, budget {most:g}"
            for name, value, most in pairs
            if value > most * (MEMORY_TOLERANCE if name == "bytes" else TOLERANCE)
        ]


@functools.cache
def head(path: str) -> bytes:
    """The header block of a call: made once, since the server's own encoder makes it and would be counted."""
    return attacks.head(path.encode(), *CLIENT)


def framed(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    """A frame, made without calling the server's modules."""
    return HEAD.pack(len(payload) >> 8, len(payload) & 0xFF, kind, flags, stream_id) + payload


class Client(asyncio.Transport):
    """One connection without a socket, so that a request always arrives in one piece."""

    def __init__(self, server: Any) -> None:
        super().__init__()
        self._raw = bytearray()
        self._stream = -1
        self._ended = asyncio.Event()
        self._connection = Connection(server)
        self._connection.connection_made(self)
        windows = settings({INITIAL_WINDOW_SIZE: 1 << 30}) + frame(WINDOW_UPDATE, 0, 0, U32.pack(1 << 30))
        self._connection.data_received(GREETING + windows)

    async def call(self, path: str, request: Any) -> list[bytes]:
        """The messages of the answer."""
        self._stream += 2
        raw = request.SerializeToString()
        body = b"\0" + U32.pack(len(raw)) + raw
        sent = [framed(HEADERS, END_HEADERS, self._stream, head(path))]
        for at in range(0, len(body), FRAME_BYTES):
            last = END_STREAM if at + FRAME_BYTES >= len(body) else 0
            sent.append(framed(DATA, last, self._stream, body[at : at + FRAME_BYTES]))
        self._raw.clear()
        self._ended.clear()
        self._connection.data_received(b"".join(sent))
        await self._ended.wait()
        return self._messages()

    def _messages(self) -> list[bytes]:
        data = b"".join(payload for kind, _, payload in self._frames() if kind == DATA)
        found, at = [], 0
        while at < len(data):
            stop = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
            found.append(data[at + 5 : stop])
            at = stop
        return found

    def _frames(self) -> list[tuple[int, int, bytes]]:
        found, at = [], 0
        while at < len(self._raw):
            high, low, kind, flags, stream_id = HEAD.unpack_from(self._raw, at)
            stop = at + HEAD_BYTES + (high << 8 | low)
            if stream_id == self._stream:
                found.append((kind, flags, bytes(self._raw[at + HEAD_BYTES : stop])))
            at = stop
        return found

    def write(self, data: Any) -> None:
        self._raw += data
        if any(flags & END_STREAM for _, flags, _ in self._frames()):
            self._ended.set()

    def close(self) -> None:
        self._connection.connection_lost(None)

    abort = close

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None:
        """The connection gives way after some hundred calls; what it is given meanwhile it handles in its next turn."""

    resume_reading = pause_reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


class Work:
    """Counts on all threads of the server. It must be installed before they start."""

    def __init__(self) -> None:
        self.on = False
        self._calls: Counter[int] = Counter()
        self._places: Counter[Any] = Counter()

    def profile(self, running: FrameType, event: str, _: Any) -> None:
        """Counts calls of Python functions of COUNTED_CODE, and of C functions that they call."""
        if self.on and event in ("call", "c_call") and running.f_code.co_filename.startswith(COUNTED_CODE):
            self._calls[threading.get_ident()] += 1  # a key for each thread: no count is lost
            if event == "call":
                self._places[running.f_code] += 1

    def take(self, messages: int) -> tuple[float, float, float]:
        """(calls, puts and deletes, commits) for each message since the last time."""
        counted = [sum(self._places[method.__code__] for method in methods) for methods in (PUTS, COMMITS)]
        totals = sum(self._calls.values()), *counted
        read = self._places[Connection.data_received.__code__]  # by the transport: its work counts, too
        self._calls.clear()
        self._places.clear()
        if not (read and all(totals)):
            raise RuntimeError(f"no work was counted: the broker that runs is not the one in {COUNTED_CODE}")
        calls, changes, commits = (round(number / messages, 4) for number in totals)
        return calls, changes, commits


# ── Legs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

Step = Callable[[Client, int], Awaitable[None]]


def sending(batch: int) -> Step:
    async def step(client: Client, number: int) -> None:
        messages = [pb.Message(message_id=f"{batch}-{number}-{place}", body=BODY) for place in range(batch)]
        (raw,) = await client.call(BROKER + "Send", pb.SendRequest(topic="t", messages=messages))
        assert len(pb.SendResponse.FromString(raw).results) == batch

    return step


def publishing(batch: int) -> Step:
    """SendMessage, with the fields that the official clients set."""

    async def step(client: Client, number: int) -> None:
        request = v2rpc.SendMessageRequest()
        for place in range(batch):
            message = request.messages.add(topic=v2.Resource(name="v"), body=BODY)
            message.system_properties.message_id = f"{batch}-{number}-{place}"
            message.system_properties.message_type = v2.NORMAL
            message.system_properties.born_timestamp.FromMilliseconds(BORN_MS)
            message.system_properties.born_host = "check"
        (raw,) = await client.call(V2 + "SendMessage", request)
        answer = v2rpc.SendMessageResponse.FromString(raw)
        assert answer.status.code == v2.OK
        assert len(answer.entries) == batch

    return step


def popping(batch: int) -> Step:
    async def step(client: Client, number: int) -> None:
        request = pb.PopRequest(topic="t", group="g", max_messages=batch, max_bytes=16 << 20)
        (raw,) = await client.call(BROKER + "Pop", request)
        handles = [delivery.handle for delivery in pb.PopResponse.FromString(raw).deliveries]
        assert len(handles) == batch
        (raw,) = await client.call(BROKER + "Ack", pb.AckRequest(group="g", handles=handles))
        assert not pb.AckResponse.FromString(raw).results

    return step


async def receiving(client: Client, number: int) -> None:
    topic, group = v2.Resource(name="t"), v2.Resource(name="v2")
    request = v2rpc.ReceiveMessageRequest(group=group, message_queue=v2.MessageQueue(topic=topic), batch_size=32)
    request.invisible_duration.FromSeconds(60)
    answers = [
        v2rpc.ReceiveMessageResponse.FromString(raw) for raw in await client.call(V2 + "ReceiveMessage", request)
    ]
    entries = [
        v2rpc.AckMessageEntry(message_id=given.message_id, receipt_handle=given.receipt_handle)
        for answer in answers
        if answer.HasField("message")
        for given in (answer.message.system_properties,)
    ]
    assert len(entries) == 32
    acking = v2rpc.AckMessageRequest(group=group, topic=topic, entries=entries)
    (raw,) = await client.call(V2 + "AckMessage", acking)
    assert v2rpc.AckMessageResponse.FromString(raw).status.code == v2.OK


LEGS: dict[str, tuple[Step, int]] = {
    "send 1": (sending(1), 1),
    "send 256": (sending(256), 256),
    "pop + ack 256": (popping(256), 256),
    "v2 send 1": (publishing(1), 1),
    "v2 send 32": (publishing(32), 32),
    "v2 receive + ack 32": (receiving, 32),
}


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Client]:
    """A client of a broker on a new store in this process, with the topics and groups of the legs."""
    options = Options(folder, port=0, metrics_port=0, sync="none", transport="python")
    # What is done depends on no time: on a busy machine a batch may take so long that it counts as a slow disk's.
    with mock.patch.object(space, "LOOK_S", math.inf), mock.patch.object(lone, "LONGEST_S", math.inf):
        async with Serving(options, FakeClock()) as serving:
            transport: Any = serving._server._transport
            client = Client(transport._server)
            await prepare(client)
            yield client
            client.close()


async def prepare(client: Client) -> None:
    """Creates the topics and groups of the legs."""
    for topic in ("t", "v"):
        await client.call(ADMIN + "CreateTopic", pb.CreateTopicRequest(topic=pb.Topic(name=topic, queues=1)))
    for group in ("g", "v2"):
        await client.call(ADMIN + "CreateGroup", pb.CreateGroupRequest(group=pb.Group(name=group)))


async def count(folder: Path) -> dict[str, Counts]:
    """All legs on a new store."""
    work = Work()
    threading.setprofile(work.profile)
    sys.setprofile(work.profile)
    try:
        async with served(folder) as client:
            found = {name: await _leg(client, work, step, messages) for name, (step, messages) in LEGS.items()}
    finally:
        threading.setprofile(None)
        sys.setprofile(None)
    return found


async def _leg(client: Client, work: Work, step: Step, messages: int) -> Counts:
    """Counts a leg. Memory is traced between rounds, since tracing makes calls of its own."""
    numbers = itertools.count()
    for _ in range(WARM):
        await step(client, next(numbers))
    rounds = [await _round(client, work, step, messages, numbers)]
    memory = await _memory(client, step, messages, numbers)
    rounds += [await _round(client, work, step, messages, numbers) for _ in range(ROUNDS - 1)]
    return Counts(*min(rounds), memory)


async def _round(
    client: Client, work: Work, step: Step, messages: int, numbers: Iterator[int]
) -> tuple[float, float, float]:
    """(calls, puts and deletes, commits) for each message of a round."""
    work.on = True
    for _ in range(COUNTED):
        await step(client, next(numbers))
    work.on = False
    return work.take(COUNTED * messages)


async def _memory(client: Client, step: Step, messages: int, numbers: Iterator[int]) -> float:
    """Bytes for each message at the peak of a request; including the client's own, which are always the same."""
    tracemalloc.start()
    try:
        peaks = []
        for _ in range(4):
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            await step(client, next(numbers))
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    return round(min(peaks) / messages)


def budgets() -> dict[str, Counts]:
    return {name: Counts(**counts) for name, counts in tomllib.loads(BUDGET.read_text()).items()}


def write(found: dict[str, Counts]) -> None:
    lines = [
        "# The work of a message, written by `python -m bench.check --write`; bench/check.py says what is counted.\n"
    ]
    for name, counts in found.items():
        lines += [f'\n["{name}"]\n', *(f"{field} = {value:g}\n" for field, value in counts._asdict().items())]
    BUDGET.write_text("".join(lines))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.check", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="take today's counts as the budget")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(count(Path(folder)))
    if options.write:
        write(found)
    known, failed = budgets(), False
    for name, counts in found.items():
        above = counts.above(known[name])
        failed |= bool(above)
        told = ", ".join(f"{value:g} {field}" for field, value in counts._asdict().items())
        print(f"{'FAIL' if above else 'PASS'}  {name}: {told}{''.join(f'; {one}' for one in above)}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
