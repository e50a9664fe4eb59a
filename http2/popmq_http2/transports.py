"""Transports of event loops: asyncio's, and those of others (uvloop, rloop), which are classes of their own."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast


def connected(transport: asyncio.BaseTransport) -> asyncio.Transport:
    """The transport of a new connection, as what each event loop passes to a protocol that it connects.

    TCP_NODELAY is set, or a call or an answer would wait for the ACK of the frames before it, up to 40 ms. asyncio sets
    it only on sockets that were made with the number of TCP, which most ways to open a port leave out.
    """
    used: Any = transport.get_extra_info("socket")
    if used is not None and used.family != getattr(socket, "AF_UNIX", None):
        used.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return cast(asyncio.Transport, transport)
