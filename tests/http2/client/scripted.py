"""A connection of the client whose server is the test: calls in, frames out, and the frames that the test answers."""

from popmq_http2 import Limits
from popmq_http2.client.blocks import RequestBlocks
from popmq_http2.client.call import ClientCall, Status
from popmq_http2.client.connection import ClientConnection
from popmq_http2.frames import ACK, DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, U32, frame, settings
from popmq_http2.hpack import Header, encode
from popmq_http2.inbox import Buffered
from popmq_http2.status import Metadata
from tests.http2.wire import Written, split

HEAD: list[Header] = [(b":status", b"200"), (b"content-type", b"application/grpc")]
OK: list[Header] = [(b"grpc-status", b"0")]


class Told(ClientCall):
    """A call that counts what it receives."""

    __slots__ = ("ends", "heards")

    def __init__(self, request: bytes | None = b"m", metadata: Metadata = (), one: bool = True) -> None:
        self.ends = self.heards = 0
        super().__init__("/t.Echo/say", metadata, None, one, request)

    def heard(self) -> None:
        self.heards += 1

    def over(self) -> None:
        self.ends += 1

    @property
    def outcome(self) -> Status:
        assert self.status is not None
        assert self.ends == 1
        return self.status


class Scripted:
    """The server's side of a connection. `first`: its SETTINGS."""

    def __init__(self, first: dict[int, int] | None = None, **limits: int) -> None:
        self.repeated: list[ClientCall] = []
        self.buffered = Buffered()
        blocks = RequestBlocks("http", "t", "test")
        self.connection = ClientConnection(Limits(**limits), blocks, self.buffered, self.repeated.append)
        greeting = self.connection.take()
        assert greeting.startswith(PREFACE)
        self.greeting = split(greeting[len(PREFACE) :])
        self.feed(settings(first or {}) + frame(SETTINGS, ACK, 0))
        assert self.connection.ready
        self.read()

    def feed(self, raw: bytes) -> None:
        self.connection.feed(raw)

    def read(self) -> list[Written]:
        return split(self.connection.take())

    def opened(self, call: Told | None = None) -> Told:
        """A call that has reached the server."""
        call = call or Told()
        self.connection.open(call)
        self.read()
        return call

    def say(self, kind: int, flags: int = 0, stream_id: int = 0, payload: bytes = b"") -> list[Written]:
        """The server's frame, and what the client answers."""
        self.feed(frame(kind, flags, stream_id, payload))
        return self.read()

    def head(self, call: ClientCall, headers: list[Header] | None = None) -> None:
        self.say(HEADERS, END_HEADERS, call.stream_id, encode(headers or HEAD))

    def message(self, call: ClientCall, message: bytes) -> list[Written]:
        return self.say(DATA, 0, call.stream_id, b"\0" + U32.pack(len(message)) + message)

    def trailers(self, call: ClientCall, headers: list[Header] | None = None) -> list[Written]:
        return self.say(HEADERS, END_HEADERS | END_STREAM, call.stream_id, encode(headers or OK))
