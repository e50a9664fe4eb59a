"""TCP relays before gateways and brokers, each in a thread of its own.

    Balancer          to one that takes the connection; it knows nothing of what it carries
    CuttingBalancer   cuts each connection after a random number of bytes

`with Balancer(ports) as endpoint:` – taps.py has those that read RocketMQ's frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

CONNECT_S = 1.0
READ_BYTES = 64 << 10


class Stream(NamedTuple):
    """One end of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Balancer:
    """`ports`: of what listens on this machine. `in_turn`: one after the other; else the first one that is there."""

    def __init__(self, ports: Sequence[int], *, in_turn: bool = True) -> None:
        self._ports, self._turn = list(ports), itertools.count(step=int(in_turn))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._open = threading.Event()
        self.port = 0

    @property
    def endpoint(self) -> str:
        """HOST:PORT for clients."""
        return f"127.0.0.1:{self.port}"

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._done = asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._open.set()
        await self._done.wait()
        server.close()
        open_ = asyncio.all_tasks() - {asyncio.current_task()}
        for task in open_:
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):  # the end of the relay
            await self._connected(Stream(reader, writer))

    async def _connected(self, near: Stream) -> None:
        """Passes a connection to the first port that takes it."""
        start = next(self._turn)
        for step in range(len(self._ports)):
            port = self._ports[(start + step) % len(self._ports)]
            with contextlib.suppress(OSError, TimeoutError):
                far = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), CONNECT_S)
                await self.passed(near, Stream(*far))
                return
        near.writer.close()

    async def passed(self, near: Stream, far: Stream) -> None:
        """Carries the bytes of a connection until it ends. `near`: who connected."""
        await asyncio.gather(self._copy(near.reader, far.writer), self._copy(far.reader, near.writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(READ_BYTES):
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.close()

    def start(self) -> None:
        """Listens from now on."""
        self._thread.start()
        self._open.wait()

    def stop(self) -> None:
        """Ends all connections."""
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> str:
        self.start()
        return self.endpoint

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


#: A connection is cut after 1 byte to so many, in both directions together; each size of a number is as likely.
CUT_BYTES_MAX = 64 << 10


class CuttingBalancer(Balancer):
    """Cuts connections while `cutting` is set: what comes last is an end of the stream, or a reset."""

    def __init__(self, ports: Sequence[int], chance: random.Random, bytes_max: int = CUT_BYTES_MAX) -> None:
        super().__init__(ports)
        self._chance, self._bytes_max = chance, bytes_max
        self.cutting, self.cuts = False, 0

    async def passed(self, near: Stream, far: Stream) -> None:
        budget = list[int]()
        await asyncio.gather(self._cut_copy(near, far, budget), self._cut_copy(far, near, budget))

    async def _cut_copy(self, source: Stream, sink: Stream, budget: list[int]) -> None:
        """`budget`: the bytes until the cut, of both directions; empty while nothing is cut."""
        try:
            with contextlib.suppress(OSError):
                while data := await source.reader.read(READ_BYTES):
                    if self.cutting and not budget:
                        budget.append(int(self._bytes_max ** self._chance.random()))
                    part = data[: budget[0]] if self.cutting else data
                    sink.writer.write(part)
                    await sink.writer.drain()
                    if self.cutting and (len(part) < len(data) or self._spent(budget, len(part))):
                        self._cut(source, sink)
                        return
        finally:
            sink.writer.close()

    def _spent(self, budget: list[int], size: int) -> bool:
        budget[0] -= size
        return budget[0] <= 0

    def _cut(self, source: Stream, sink: Stream) -> None:
        self.cuts += 1
        if self._chance.random() < 0.5:
            sink.writer.transport.abort()
        source.writer.transport.abort()
