"""A TCP balancer before gateways: it knows nothing of what they carry, and passes a connection to one that takes it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Sequence
from types import TracebackType

CONNECT_S = 1.0
READ_BYTES = 64 << 10


class Balancer:
    """`with Balancer(ports) as endpoint:` – in a thread of its own."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports, self._turn = list(ports), itertools.count()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._open = threading.Event()
        self.port = 0

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
        start = next(self._turn)
        for step in range(len(self._ports)):
            port = self._ports[(start + step) % len(self._ports)]
            with contextlib.suppress(OSError, TimeoutError):
                far = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), CONNECT_S)
                await asyncio.gather(self._copy(reader, far[1]), self._copy(far[0], writer))
                return
        writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(READ_BYTES):
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.close()

    def __enter__(self) -> str:
        self._thread.start()
        self._open.wait()
        return f"127.0.0.1:{self.port}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join()
        self._loop.close()
