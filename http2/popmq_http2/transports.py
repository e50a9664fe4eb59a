"""Transports of event loops: asyncio's, and those of others (uvloop, rloop), which are classes of their own.

Sockets are read into one buffer for all connections of an event loop. For a protocol that is not a BufferedProtocol,
asyncio allocates 256 KiB for each read, and returns most of it. With glibc that maps and unmaps pages: a read of 1 KiB
took 13 µs of CPU time, into memory that is kept 2 µs. asyncio fills the buffer and passes it to the protocol in one
step, so connections can share it.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

RECEIVE_BYTES = 256 << 10


class ReceiveBuffer:
    """Memory for `get_buffer` and `buffer_updated` of a BufferedProtocol."""

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(RECEIVE_BYTES))

    def copy(self, size: int) -> bytes:
        """The first `size` bytes, in an object of their own."""
        return bytes(self.memory[:size])


def connected(transport: asyncio.BaseTransport) -> asyncio.Transport:
    """The transport of a new connection, as what each event loop passes to a protocol that it connects.

    TCP_NODELAY is set, or a call or an answer would wait for the ACK of the frames before it, up to 40 ms. asyncio sets
    it only on sockets that were made with the number of TCP, which most ways to open a port leave out.
    """
    used: Any = transport.get_extra_info("socket")
    if used is not None and used.family != getattr(socket, "AF_UNIX", None):
        used.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return cast(asyncio.Transport, transport)
