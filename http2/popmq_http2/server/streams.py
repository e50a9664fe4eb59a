"""The streams of one connection: frames that name a stream open, feed and end calls.

    HEADERS, CONTINUATION ─▶ block ─▶ Head ─▶ Call ─▶ handler's task
    DATA ──────────────────────────────────▶ its Inbox ──┘
    RST_STREAM, a deadline, end of the connection ─▶ the task is cancelled

The answers to frames that cannot be handled (RFC 9113, section 5.1):

    a frame on a stream that …               is answered by
    its client ended or reset                STREAM_CLOSED: of the stream for DATA, of the connection for HEADERS
    we ended while its client was sending    nothing, it may have been under way; it costs a point of the budget
    was never open                           PROTOCOL_ERROR of the connection
    exceeds the number of calls              REFUSED_STREAM: gRPC clients retry
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from popmq_http2.budget import Budget
from popmq_http2.frame_reader import decoded, unpadded
from popmq_http2.frames import (
    DEFAULT_WINDOW,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    NO_ERROR,
    PADDED,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    RST_STREAM,
    STREAM_CLOSED,
    U32,
    WINDOW_UPDATE,
    ConnectionFault,
    StreamFault,
    frame,
)
from popmq_http2.hpack import Decoder, Header
from popmq_http2.inbox import Buffered, Inbox
from popmq_http2.limits import Limits
from popmq_http2.request import Head, HeadReader, Malformed, check_trailers
from popmq_http2.server.arrivals import Arrival, Arrivals
from popmq_http2.server.call import Call, Running
from popmq_http2.server.outlet import Outlet
from popmq_http2.server.turns import AddressTurns
from popmq_http2.status import Aborted, Code

log = logging.getLogger("popmq_http2")

#: Streams that we ended before the client may know it: further frames on these are not a violation.
_ENDED_MAX = 1_000
#: Header blocks in the cache, and their maximum size.
_BLOCKS_MAX, _BLOCK_BYTES = 128, 1024
#: To decode this many headers costs us about as much as to answer a PING.
_HEADERS_PER_POINT = 4
#: To decode this many bytes of Huffman strings costs as much, some 25 µs: a call of a usual client has a few hundred,
#: most of them only once, and pays with the points that its answer returns.
_HUFFMAN_PER_POINT = 64
#: Memory of an open call besides its messages and headers: 520 bytes, and as much again for its end and its answer.
CALL_BYTES = 1_500
_NO_ROOM = "the memory for requests is full, and this client holds most of it: send less at a time, and try again later"


class ServerOfStreams(Protocol):
    """The part of Server that the streams of a connection use."""

    limits: Limits
    buffered: Buffered
    turns: AddressTurns
    check: Callable[[Call], None] | None

    def relieve(self) -> None:
        """Makes room for requests."""

    def opened(self, call: Call) -> None:
        """Starts a new call."""

    def fed(self, call: Call) -> None:
        """Handles new messages of a call, or their end."""


class Streams:
    """The calls of a connection. `closing`: new ones are refused.

    A stream is in `calls` from its HEADERS until its last frame was written or it was reset. If we end one before its
    client has finished, its id stays in `_ended` for a while, since frames of it may be under way.
    """

    def __init__(self, server: ServerOfStreams, budget: Budget, outlet: Outlet) -> None:
        self._server = server
        self._limits = server.limits
        self._budget = budget
        self._outlet = outlet
        self._decoder = Decoder(self._pay)
        #: Bytes of Huffman strings since the last point that they cost.
        self._unpaid = 0
        self._reader = HeadReader()
        self._heads: dict[bytes, Head] = {}
        #: Bytes of the head that was read last; 0 if it is in the cache, and so shared by the calls that have it.
        self._own_headers = 0
        self._ended: deque[int] = deque(maxlen=_ENDED_MAX)
        self._window_in = DEFAULT_WINDOW
        self._running = Running()
        #: What the unfinished requests had received at the last look, by stream.
        self._received: dict[int, int] = {}
        self.arrivals = Arrivals(outlet.control)
        self.calls: dict[int, Call] = {}
        self.last_id = 0
        self.closing = False

    @property
    def is_done(self) -> bool:
        """Whether the connection is closing, has no open call, and knows which answers arrived."""
        return self.closing and not self.calls and self.arrivals.asked_s is None

    # ── DATA ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def open_window(self) -> None:
        """Raises the window of the connection above the protocol's default."""
        self._grant(self._limits.connection_window - DEFAULT_WINDOW)

    def _grant(self, size: int) -> None:
        """Sends WINDOW_UPDATE for the connection."""
        self._window_in += size
        self._outlet.control(frame(WINDOW_UPDATE, 0, 0, U32.pack(size)))

    def on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Handles DATA. Refills the connection's window at once: stream windows and Buffered limit what is held."""
        size, ends = len(payload), bool(flags & END_STREAM)
        self._window_in -= size
        if self._window_in < 0:
            raise ConnectionFault(FLOW_CONTROL_ERROR, "more DATA than the window of the connection allows")
        if self._window_in < self._limits.connection_window // 2:
            self._grant(self._limits.connection_window - self._window_in)
        if size < self._limits.tiny_data_bytes and not ends:
            self._budget.spend("tiny DATA")
        data = unpadded(payload) if flags & PADDED else payload
        call = self.calls.get(stream_id)
        if call is None or call.inbox.ended:
            self._not_open(stream_id, call, "DATA")
            return
        if call.ending is not None:
            self._budget.spend("DATA on ended streams")
            call.inbox.ended = ends
            return
        call.window_in -= size
        if call.window_in < 0:
            raise StreamFault(stream_id, FLOW_CONTROL_ERROR, "more DATA than the window of the stream allows")
        self._feed(call, data, ends)

    def _feed(self, call: Call, data: bytes, ends: bool) -> None:
        """Passes received bytes to a call; a request that is not gRPC is read to its end and then answered."""
        if call.body_left >= 0:
            call.body_left -= len(data)
            if call.body_left < 0 or (ends and call.body_left):
                raise StreamFault(call.stream_id, PROTOCOL_ERROR, "the DATA are not as long as content-length says")
        refused = call.head.refusal is not None
        if ends and not refused and call.inbox.add_whole(data):
            self._server.fed(call)
            return
        try:
            if data and not refused:
                self._keep(call, data)
            if ends:
                call.inbox.end()
        except Aborted as aborted:
            call.inbox.ended = call.inbox.ended or ends
            self._end_early(call, aborted)
            return
        self._outlet.return_window(call)
        if refused:
            self._refuse(call)
        else:
            self._server.fed(call)

    def _keep(self, call: Call, data: bytes) -> None:
        """Keeps bytes of a request that is not whole yet. Raises Aborted, also when it had to make room for others."""
        if self._server.buffered.bytes + len(data) > self._limits.requests_bytes:
            self._server.relieve()
            if call.ending is not None:
                raise Aborted(Code.RESOURCE_EXHAUSTED, _NO_ROOM)
        call.inbox.add(data)
        if self._budget.held > self._limits.unproved_bytes:
            self._prove(call)

    def _prove(self, call: Call) -> None:
        """Asks once for the proof of a caller who takes much room. Raises Aborted."""
        if not call.proved:
            call.proved = True
            if self._server.check is not None:
                self._server.check(call)

    def relieve(self, enough: int) -> None:
        """Ends the largest requests, until those that are left hold `enough` bytes."""
        left = self._budget.held
        for call in sorted(self.calls.values(), key=lambda call: call.inbox.held, reverse=True):
            if left <= enough:
                break
            left -= call.inbox.held
            self._end_early(call, Aborted(Code.RESOURCE_EXHAUSTED, _NO_ROOM))

    def end_stuck(self) -> None:
        """Ends requests that have hardly grown since the last look: they would hold memory for as long as they like."""
        before, self._received = self._received, {}
        for stream_id, call in list(self.calls.items()):
            if not call.is_unfinished:
                continue
            received = self._received[stream_id] = call.inbox.received
            if received - before.get(stream_id, -self._limits.progress_bytes) < self._limits.progress_bytes:
                self._end_early(call, Aborted(Code.DEADLINE_EXCEEDED, "the rest of the request does not come"))

    def _end_early(self, call: Call, why: Aborted) -> None:
        """Ends a call and frees its messages."""
        call.inbox.drop()
        self._outlet.end(call, why.code, why.message, why.metadata)
        _cancel(call)

    # ── HEADERS ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def on_block(self, flags: int, stream_id: int, block: bytes) -> None:
        """Handles a whole header block: of a new stream, or the trailers of an open one."""
        if len(block) > self._limits.header_block_bytes:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "the headers of a request are too large")
        if stream_id <= self.last_id:
            self._on_trailers(flags, stream_id, block)
            return
        self.last_id = stream_id
        try:
            if (read := self._heads.get(block)) is None:
                read = self._head(block)
            else:
                self._own_headers = 0
        except Malformed as malformed:
            raise StreamFault(stream_id, PROTOCOL_ERROR, str(malformed)) from None
        if self.closing or max(self._running.count, len(self.calls)) >= self._limits.streams:
            self._budget.spend("calls above the number that is allowed")
            raise StreamFault(stream_id, REFUSED_STREAM, "too many calls at a time")
        self._open(stream_id, read, bool(flags & END_STREAM))

    def _head(self, block: bytes) -> Head:
        """Decodes a block. Caches the result if the block changed no table, until another block changes one."""
        version = self._decoder.version
        read = self._reader.read(self._pairs(block))
        self._own_headers = self._decoder.list_bytes
        if version == self._decoder.version and len(block) <= _BLOCK_BYTES:
            if len(self._heads) >= _BLOCKS_MAX:
                self._heads.clear()
            self._heads[block] = read
            self._own_headers = 0
        return read

    def _pairs(self, block: bytes) -> list[Header]:
        """Decodes the headers of a block. An error ends the connection, since both sides' tables would then differ."""
        version = self._decoder.version
        pairs = decoded(self._decoder, block, self._limits, "a request")
        if len(pairs) > self._limits.free_headers:
            self._budget.spend("many headers", (len(pairs) - self._limits.free_headers) // _HEADERS_PER_POINT)
        if version != self._decoder.version:
            self._heads.clear()
        return pairs

    def _pay(self, size: int) -> None:
        """Pays for a Huffman string, before it is decoded."""
        points, self._unpaid = divmod(self._unpaid + size, _HUFFMAN_PER_POINT)
        if points:
            self._budget.spend("long Huffman strings", points)

    def _on_trailers(self, flags: int, stream_id: int, block: bytes) -> None:
        """Handles a second header block of a stream: gRPC clients send none, HTTP/2 allows one at the end."""
        pairs = self._pairs(block)  # also for a closed stream: the tables must stay in step
        call = self.calls.get(stream_id)
        if call is None or call.inbox.ended:
            self._not_open(stream_id, call, "HEADERS")
            return
        try:
            check_trailers(pairs)
        except Malformed as malformed:
            raise StreamFault(stream_id, PROTOCOL_ERROR, str(malformed)) from None
        if not flags & END_STREAM:
            raise StreamFault(stream_id, PROTOCOL_ERROR, "trailers that end nothing")
        self._feed(call, b"", True)

    def _open(self, stream_id: int, read: Head, ends: bool) -> None:
        """Opens a call: starts its handler, or answers at once with the reason of the refusal."""
        limits, outlet = self._limits, self._outlet
        turns, self._budget.turn = self._server.turns, self._budget.turn - 1
        turns.left -= 1
        if not turns.left:
            turns.over(self._budget)
        own_bytes = CALL_BYTES + self._own_headers
        inbox = Inbox(limits, self._server.buffered, read.encoding, self._budget, own_bytes)
        windows = limits.stream_window, outlet.call_window
        call = self.calls[stream_id] = Call(outlet, self._running, stream_id, read, inbox, *windows)
        inbox.ended = ends
        if ends and call.body_left > 0:
            raise StreamFault(stream_id, PROTOCOL_ERROR, "the DATA are not as long as content-length says")
        much = self._budget.held > limits.unproved_bytes or self._server.buffered.bytes > limits.requests_bytes
        if much and not self._may_stay(call):
            return
        if outlet.unsent > limits.unsent_bytes:
            self._budget.spend("calls whose answers are not taken")
            outlet.end(call, Code.RESOURCE_EXHAUSTED, "the client does not take the answers that it has asked for")
        elif read.refusal is not None:
            self._refuse(call)
        else:
            self._server.opened(call)

    def _may_stay(self, call: Call) -> bool:
        """Whether a new call stays open although much room is taken; it is ended otherwise. Raises StreamFault."""
        try:
            self._prove(call)
        except Aborted as aborted:
            self._end_early(call, aborted)
        if self._server.buffered.bytes > self._limits.requests_bytes:
            self._server.relieve()
        if self._server.buffered.bytes > self._limits.requests_bytes and not call.is_over:
            raise StreamFault(call.stream_id, REFUSED_STREAM, _NO_ROOM)
        return call.ending is None

    def _refuse(self, call: Call) -> None:
        """Answers an invalid request once the client has sent all of it."""
        if call.inbox.ended and call.head.refusal is not None:
            if call.head.http_status == 200:
                self._outlet.end(call, *call.head.refusal)
            else:
                self._outlet.end_plainly(call, call.head.http_status, call.head.refusal[1])

    def _not_open(self, stream_id: int, call: Call | None, what: str) -> None:
        """Handles a frame on a stream that its client or we have ended, or that never existed."""
        if call is None and stream_id not in self._ended and (stream_id > self.last_id or not stream_id & 1):
            raise ConnectionFault(PROTOCOL_ERROR, f"{what} on stream {stream_id}, which is not open")
        self._budget.spend(f"{what} on ended streams")
        if call is None and stream_id in self._ended:
            return
        if call is None and what == "HEADERS":
            raise ConnectionFault(STREAM_CLOSED, f"HEADERS on stream {stream_id}, which has ended")
        raise StreamFault(stream_id, STREAM_CLOSED, f"{what} on stream {stream_id}, which its client has ended")

    # ── Ends ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def on_reset(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Cancels a call for its client. It costs a point: opening and resetting is almost free for the client."""
        if len(payload) != 4:
            raise ConnectionFault(FRAME_SIZE_ERROR, "a RST_STREAM frame has 4 bytes")
        if not stream_id or stream_id > self.last_id:
            raise ConnectionFault(PROTOCOL_ERROR, "RST_STREAM of a stream that was never open")
        self._budget.spend("RST_STREAM")
        if call := self.calls.get(stream_id):
            self._drop(call, Arrival.REFUSED)
        elif U32.unpack(payload)[0] != NO_ERROR:
            self.arrivals.refused(stream_id)

    def reset(self, fault: StreamFault) -> None:
        """Resets a stream after a fault. It costs as much as a reset by the client: both waste our work."""
        self._budget.spend("an invalid request")
        log.debug("stream %d of %s: %s", fault.stream_id, self._outlet.peer, fault)
        self._outlet.control(frame(RST_STREAM, 0, fault.stream_id, U32.pack(fault.code)))
        if call := self.calls.get(fault.stream_id):
            self._drop(call, Arrival.REFUSED)
        if fault.code != STREAM_CLOSED:
            self._ended.append(fault.stream_id)

    # A call leaves `calls` in exactly two ways: here, after its last frame was written, and in _drop.
    def closed(self, call: Call) -> None:
        """Removes a finished call. If its client was still sending, it does not know the end yet."""
        if not call.inbox.ended:
            self._ended.append(call.stream_id)
        del self.calls[call.stream_id]
        if call.arrival is not None:
            self.arrivals.written(call.stream_id, call.arrival)
        call.over()

    def end_all(self, code: Code, why: str) -> None:
        """Ends all open calls with a status."""
        for call in list(self.calls.values()):
            self._outlet.end(call, code, why)
            _cancel(call)

    def drop_all(self) -> None:
        """Drops all calls after the connection is lost."""
        for call in list(self.calls.values()):
            self._drop(call, Arrival.LOST)
        self.arrivals.lost()

    def _drop(self, call: Call, arrival: Arrival) -> None:
        """Drops a call whose answer is not wanted any more, or cannot arrive, and cancels its handler."""
        self._outlet.discard(call)
        del self.calls[call.stream_id]
        _cancel(call)
        call.over()
        call.tell(arrival)


def expire(call: Call) -> None:
    """Ends a call whose deadline has passed. Its client has given it up, and reads what is left to no purpose."""
    call.end(Code.DEADLINE_EXCEEDED, "the deadline has passed")
    call.tell(Arrival.REFUSED)
    _cancel(call)


def _cancel(call: Call) -> None:
    if call.task is not None and not call.task.done():
        if not call.entered:  # its handler never begins
            call.entered = True
            call.task.add_done_callback(call.running.cancelled)
        call.task.cancel()
