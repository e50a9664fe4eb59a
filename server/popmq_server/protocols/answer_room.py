"""Room for answers with messages: how many bytes of them callers may have asked for and not taken yet.

    a call ── Pop, Pull, Browse … ──▶ check: is there room?  ──▶ the engine reads ──▶ hold: is there still? ──▶ answer
                                        │ no                                           │ no: the answer is dropped
                                        ▼                                              ▼
                                      BUSY, or RATE_LIMITED by the access key, with a time after which to try again

The bytes are held until the call is over: its answer was written to the connection, or its client has gone. What a Pop
leased for an answer that was dropped is visible again at once, and no attempt counts. How much an answer has is known
only when it was read, so all calls of a client that asks many times at once are read, one commit batch after the other;
each batch has at most 16 MiB.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from urllib.parse import unquote

from popmq_http2.server.addresses import counted
from popmq_server.errors import Refused
from popmq_server.logs import CALL
from popmq_server.protocols.access.admission import IN_FLIGHT

#: Bytes of answers that a connection, and all together may have. An address may have as many bytes as
#: it leaves free: half of all when it is alone, a quarter beside one that has half, and so on. So a few addresses
#: cannot shut out the rest. A connection, or an address, without any may have one answer of any size.
CONNECTION_BYTES, ALL_BYTES = 64 << 20, 512 << 20
#: Smaller answers are not counted: those of the most calls that a connection may have are 10 MiB.
FREE_BYTES = 1 << 10
#: When the client takes its answers is not known, so this is a guess at when to try again, in ms.
_LATER_MS = 200
_ALL = ""


class AnswerRoom:
    """The room of one broker. For the event loop; `CALL` is the call that asks, None within the broker."""

    def __init__(self) -> None:
        self._connection, self._all = CONNECTION_BYTES, ALL_BYTES
        self._held: Counter[str] = Counter()

    def check(self) -> None:
        """Raises Refused when the running call's answer would have no room, before it is read."""
        if (call := CALL.get()) is not None and self._held:
            self._fit(_scopes(call.peer()), 1)

    def hold(self, size: int) -> None:
        """Holds bytes of the running call's answer until it is over. Raises Refused, and holds nothing then."""
        call = CALL.get()
        if call is None or size <= FREE_BYTES:
            return
        scopes = _scopes(call.peer())
        self._fit(scopes, size)
        if (in_flight := IN_FLIGHT.get()) is not None:
            in_flight.reads(size)
        for scope in scopes:
            self._held[scope] += size
        call.add_done_callback(lambda _: self._release(scopes, size))

    def _fit(self, scopes: tuple[str, ...], size: int) -> None:
        connection, address, everybody = (self._held.get(scope, 0) for scope in scopes)
        left = (self._all - everybody + address) // 2
        for held, most, whose in (
            (connection, self._connection, "this connection"),
            (address, left, "this address"),
            (everybody, self._all, "all clients"),
        ):
            if held and held + size > most:
                raise Refused(
                    "BUSY",
                    f"{held:,} bytes of answers to {whose} were not taken yet; at most {most:,} may wait",
                    action="read the answers that you asked for, ask for less at a time, and retry with backoff",
                    retry_after_ms=_LATER_MS,
                )

    def _release(self, scopes: tuple[str, ...], size: int) -> None:
        for scope in scopes:
            self._held[scope] -= size
            if not self._held[scope]:
                del self._held[scope]


@functools.lru_cache(maxsize=4096)
def _scopes(peer: str) -> tuple[str, str, str]:
    """(connection, address, all) of a client such as `ipv4:10.0.0.7:51234`."""
    host = unquote(peer.partition(":")[2].rpartition(":")[0]).strip("[]")
    with contextlib.suppress(ValueError):
        host = counted(host)
    return peer, f"of {host}", _ALL
