"""A client that asks, and takes no answers."""

import socket

from harness.attacks import GREETING, head
from popmq_http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEAD,
    HEAD_BYTES,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    U32,
    frame,
    settings,
)
from popmq_http2.hpack import Decoder
from tests.wire.stubs import CALL_S

#: Of each stream: refusals fit into it, messages do not.
WINDOW = 1_000


class Deaf:
    """A connection that reads statuses and no messages. `ended`: the trailers of the calls that have ended."""

    def __init__(self, endpoint: str, address: str = "127.0.0.1", window: int = WINDOW) -> None:
        host, _, port = endpoint.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), CALL_S, (address, 0))
        self._answers = self._socket.makefile("rb")
        self._socket.sendall(GREETING + settings({INITIAL_WINDOW_SIZE: window}))
        self._decoder = Decoder()
        self._next = 1
        self._heard = set[int]()
        self.ended: dict[int, dict[bytes, bytes]] = {}

    def ask(self, path: str, message: bytes, *headers: tuple[bytes, bytes]) -> None:
        block = head(path.encode(), *headers)
        whole = frame(DATA, END_STREAM, self._next, b"\0" + U32.pack(len(message)) + message)
        self._socket.sendall(frame(HEADERS, END_HEADERS, self._next, block) + whole)
        self._next += 2

    def until(self, count: int) -> list[dict[bytes, bytes]]:
        """Waits until so many calls have ended."""
        while len(self.ended) < count:
            self.hear()
        return list(self.ended.values())

    @property
    def has_heard(self) -> bool:
        """Whether each call has the head of its answer, or its end."""
        return len(self._heard) == self._next // 2

    def hear(self) -> None:
        """Reads the next frame."""
        high, low, kind, flags, stream_id = HEAD.unpack(self._answers.read(HEAD_BYTES))
        payload = self._answers.read(high << 8 | low)
        if kind == HEADERS:
            self._heard.add(stream_id)
            found = dict(self._decoder.decode(payload, 1 << 16))
            if flags & END_STREAM:
                self.ended[stream_id] = found

    def close(self) -> None:
        self._answers.close()
        self._socket.close()
