"""A client that writes any frame, in any order, and reads what comes back: to do what well-behaved clients never do."""

import asyncio
from typing import Any, NamedTuple, Self

from hpack.hpack import Decoder, Encoder

from popmq_http2 import frames
from popmq_http2.frames import HEAD, HEAD_BYTES, PREFACE, U32

WAIT_S = 20.0


class Frame(NamedTuple):
    kind: int
    flags: int
    stream_id: int
    payload: bytes


class FrameClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.encoder, self.decoder = Encoder(), Decoder()
        self.headers: dict[str, str] = {}

    @classmethod
    async def connect(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def greet(self) -> None:
        """Preface and SETTINGS; past those of the server."""
        self.write(PREFACE + frames.settings({}) + frames.frame(frames.SETTINGS, frames.ACK, 0))
        while (got := await self.read()).kind != frames.SETTINGS or not got.flags & frames.ACK:
            pass

    def write(self, raw: bytes) -> None:
        self._writer.write(raw)

    def send(self, kind: int, flags: int = 0, stream_id: int = 0, payload: bytes = b"") -> None:
        self.write(frames.frame(kind, flags, stream_id, payload))

    def head(self, method: str, **others: str) -> bytes:
        """A header block of a call."""
        pairs = [(":method", "POST"), (":scheme", "http"), (":path", f"/t.Echo/{method}"), (":authority", "t")]
        pairs += [("content-type", "application/grpc"), ("te", "trailers")]
        pairs += [(name.replace("_", "-"), value) for name, value in others.items()]
        block: bytes = self.encoder.encode(pairs)
        return block

    def open(self, stream_id: int, method: str = "wait", flags: int = frames.END_HEADERS, **others: Any) -> None:
        self.send(frames.HEADERS, flags, stream_id, self.head(method, **others))

    def ask(self, stream_id: int, method: str = "wait", message: bytes = b"m", **others: Any) -> None:
        """A whole unary call."""
        self.open(stream_id, method, **others)
        self.send(frames.DATA, frames.END_STREAM, stream_id, b"\0" + U32.pack(len(message)) + message)

    async def read(self) -> Frame:
        """The next frame. Raises IncompleteReadError or ConnectionResetError when the server has closed."""
        async with asyncio.timeout(WAIT_S):
            high, low, kind, flags, stream_id = HEAD.unpack(await self._reader.readexactly(HEAD_BYTES))
            return Frame(kind, flags, stream_id, await self._reader.readexactly(high << 8 | low))

    async def until(self, kind: int, stream_id: int | None = None) -> Frame:
        """The next frame of a type (and a stream)."""
        while True:
            got = await self.read()
            if got.kind == frames.HEADERS:
                self.headers = dict(self.decoder.decode(got.payload))
            if got.kind == kind and stream_id in (None, got.stream_id):
                return got

    async def status(self, stream_id: int) -> str:
        """How a call ends."""
        while True:
            await self.until(frames.HEADERS, stream_id)
            if "grpc-status" in self.headers:
                return self.headers["grpc-status"]

    async def gone(self) -> int:
        """The error of the GOAWAY with which the server closes."""
        got = await self.until(frames.GOAWAY)
        code: int = U32.unpack_from(got.payload, 4)[0]
        rest = await asyncio.wait_for(self._rest(), WAIT_S)
        assert rest in (b"", None)
        return code

    async def _rest(self) -> bytes | None:
        try:
            return await self._reader.read()
        except ConnectionResetError:  # it closed while we were still writing
            return None

    async def alive(self) -> None:
        """Returns when the server has taken all that was written."""
        self.send(frames.PING, payload=b"12345678")
        while (await self.until(frames.PING)).payload != b"12345678":
            pass

    def close(self) -> None:
        self._writer.close()
