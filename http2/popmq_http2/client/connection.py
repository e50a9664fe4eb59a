"""One connection of a client, without a socket: received bytes in, bytes to send out, calls in between.

    open, send, cancel ─▶ calls ─▶ pump: HEADERS and DATA, as far as the windows allow ─▶ take: bytes for the socket
    feed(bytes) ─▶ frames ─▶ the inbox and the status of their call, and answers to SETTINGS, PING and windows

    starting ── SETTINGS ──▶ ready ── GOAWAY, or no stream ids left ──▶ leaving ── last call ends ──▶ finished
        └── lost: the socket closed, or the server broke the protocol ──────────────────────────────────▶

A call that the server certainly did not begin is given to `repeat`: it was refused (REFUSED_STREAM), or has a higher
number than the last one of a GOAWAY. All others end with a status when the connection is lost.
A violation of the protocol that may concern any of its calls ends the connection, with GOAWAY; one that concerns a
single stream resets that stream, and its call ends with INTERNAL.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from popmq_http2 import frames
from popmq_http2.budget import CALL_POINTS, Budget
from popmq_http2.client.answers import NO_STATUS, AnswerReader, goaway, reset_status
from popmq_http2.client.blocks import RequestBlocks
from popmq_http2.client.call import ClientCall, Status
from popmq_http2.client.sending import TURN_BYTES, Sending, greeting
from popmq_http2.frame_reader import FrameReader, unpadded
from popmq_http2.frames import U32, ConnectionFault, StreamFault, frame, read_settings
from popmq_http2.inbox import Buffered, Inbox
from popmq_http2.limits import Limits
from popmq_http2.request import Malformed
from popmq_http2.status import Aborted, Code

#: A connection is left before its numbers of streams end.
STREAM_ID_MAX = (1 << 31) - 3


class ClientConnection:
    """The state of a connection. After each call of a method, `take` has the bytes to send."""

    def __init__(
        self, limits: Limits, blocks: RequestBlocks, buffered: Buffered, repeat: Callable[[ClientCall], object]
    ) -> None:
        self._limits = limits
        self._blocks = blocks
        self._buffered = buffered
        self._repeat = repeat
        self._budget = Budget(limits)
        self._answers = AnswerReader(limits)
        take = {
            frames.DATA: self._on_data,
            frames.RST_STREAM: self._on_reset,
            frames.SETTINGS: self._on_settings,
            frames.PUSH_PROMISE: self._on_push,
            frames.PING: self._on_ping,
            frames.GOAWAY: self._on_goaway,
            frames.WINDOW_UPDATE: self._on_window,
        }
        self._reader = FrameReader(limits, self._budget, take, self._on_block, self._fault, preface=b"")
        self._next_id = 1
        self._streams_max = limits.streams
        self._unopened: deque[ClientCall] = deque()  # wait for the server's limit of streams
        self._window_in = limits.connection_window
        self.calls: dict[int, ClientCall] = {}
        #: A PING was sent, and nothing has come since.
        self.asked = False
        #: The server's SETTINGS have come; it takes no new calls.
        self.ready = self.leaving = False
        #: Why the connection was lost; the reason of a GOAWAY with an error.
        self.why = self.said = ""
        self._sending = Sending(greeting(limits), self._budget)
        #: The bytes to send now.
        self.take = self._sending.take

    # ── For the channel ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def finished(self) -> bool:
        """Whether the socket may be closed once everything was sent."""
        return bool(self.why) or (self.leaving and not self.calls)

    @property
    def busy(self) -> bool:
        """Whether a call is under way. Those that wait for the server's limit wait for one of these."""
        return bool(self.calls)

    def open(self, call: ClientCall) -> None:
        """Begins a call, or keeps it until the server takes another one."""
        if len(self.calls) >= self._streams_max:
            self._unopened.append(call)
            return
        try:
            block = self._blocks.block(call.path, call.metadata, call.timeout_s)
        except ValueError as error:
            call.finish(Status(Code.INTERNAL, str(error)))
            return
        call.stream_id, self._next_id = self._next_id, self._next_id + 2
        call.inbox = Inbox(self._limits, self._buffered, b"identity", self._budget)
        call.window_in, call.window_out = self._limits.stream_window, self._sending.call_window
        self.calls[call.stream_id] = call
        self._sending.headers(call.stream_id, block)
        self._sending.add(call)
        if self._next_id > STREAM_ID_MAX:
            self._leave()

    def send(self, call: ClientCall) -> None:
        """Sends the messages of a call, and its end."""
        if self.calls.get(call.stream_id) is call:
            self._sending.add(call)

    def taken(self, call: ClientCall) -> None:
        """A message was taken: widens the window of its stream once half of it is used up."""
        if call.inbox is not None and self.calls.get(call.stream_id) is call:
            back = self._limits.stream_window - call.window_in - call.inbox.waiting
            if back >= self._limits.stream_window // 2:
                call.window_in += back
                self._sending.control(frame(frames.WINDOW_UPDATE, 0, call.stream_id, U32.pack(back)))

    def cancel(self, call: ClientCall, status: Status) -> None:
        """Ends a call, for the server too; no effect on one that is over."""
        if call in self._unopened:
            self._unopened.remove(call)
            call.finish(status)
        elif self.calls.get(call.stream_id) is call:
            self._end_early(call, status)

    def ping(self) -> None:
        """Asks whether the server is there."""
        self.asked = True
        self._sending.control(frame(frames.PING, 0, 0, b"keepaliv"))

    def feed(self, data: bytes) -> None:
        """Handles received bytes."""
        self.asked = False
        try:
            self._reader.feed(data)
        except ConnectionFault as fault:
            self._go_away(fault.code, str(fault))
            self.lost(f"the server does not speak HTTP/2 as it should: {fault}")

    def close(self, status: Status) -> None:
        """Ends all calls, and tells the server."""
        for call in [*self._unopened, *self.calls.values()]:
            self.cancel(call, status)
        if not self.why:
            self._go_away(frames.NO_ERROR, "")
            self.lost("the channel was closed")

    def lost(self, why: str) -> None:
        """Ends the calls of a lost connection; the server may have carried them out."""
        if self.why:
            return
        self.why = self.said or why
        self._reader.stop()
        calls, self.calls = self.calls, {}
        for call in calls.values():
            call.finish(Status(Code.UNAVAILABLE, self.why))
        self._leave()

    def _go_away(self, code: int, why: str) -> None:
        self._sending.control(frame(frames.GOAWAY, 0, 0, U32.pack(0) + U32.pack(code) + why.encode()))

    # ── Frames of calls ──────────────────────────────────────────────────────────────────────────────────────────────

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Refills the connection's window at once: stream windows and Buffered limit what is held."""
        size, ends = len(payload), bool(flags & frames.END_STREAM)
        self._window_in -= size
        if self._window_in < 0:
            raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "more DATA than the window of the connection allows")
        if self._window_in < self._limits.connection_window // 2:
            back = self._limits.connection_window - self._window_in
            self._window_in += back
            self._sending.control(frame(frames.WINDOW_UPDATE, 0, 0, U32.pack(back)))
        if not size and not ends:
            self._budget.spend("empty DATA")
        data = unpadded(payload) if flags & frames.PADDED else payload
        call = self._known(stream_id, "DATA")
        if call is None or call.inbox is None:
            return
        call.window_in -= size
        if call.window_in < 0:
            raise StreamFault(stream_id, frames.FLOW_CONTROL_ERROR, "more DATA than the window of the stream allows")
        if not call.replied:
            raise StreamFault(stream_id, frames.PROTOCOL_ERROR, "DATA before the head of the answer")
        self._deliver(call, call.inbox, data, ends)

    def _deliver(self, call: ClientCall, inbox: Inbox, data: bytes, ends: bool) -> None:
        """Passes received bytes to a call."""
        try:
            if data:
                inbox.add(data)
        except Aborted as aborted:
            self._end_early(call, Status(aborted.code, aborted.message))
            return
        if ends:
            self._end(call, NO_STATUS)
            return
        self.taken(call)
        if inbox.messages:
            call.heard()

    def _on_block(self, flags: int, stream_id: int, block: bytes) -> None:
        """A whole header block. It is decoded for an ended call too: the tables of both sides must stay the same."""
        try:
            result = self._answers.read(block)
        except Malformed as malformed:
            raise StreamFault(stream_id, frames.PROTOCOL_ERROR, str(malformed)) from None
        call, ends = self._known(stream_id, "HEADERS"), bool(flags & frames.END_STREAM)
        if call is None or call.inbox is None:
            return
        if result.refusal is not None and result.status is None:
            (self._end if ends else self._end_early)(call, result.refusal)
        elif ends:
            self._budget.earn(CALL_POINTS)
            self._end(call, result.status or NO_STATUS)
        elif call.replied:
            raise StreamFault(stream_id, frames.PROTOCOL_ERROR, "trailers that end nothing")
        else:
            call.replied, call.inbox.encoding = True, result.encoding

    def _on_reset(self, flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "a RST_STREAM frame has 4 bytes")
        code = U32.unpack(payload)[0]
        if call := self._known(stream_id, "RST_STREAM"):
            call.sent = True
            if code != frames.REFUSED_STREAM or call.replied or not self._again(call):
                self._end(call, reset_status(code))

    def _known(self, stream_id: int, what: str) -> ClientCall | None:
        """The call of a frame; None for one that is over, whose frames may have been under way."""
        call = self.calls.get(stream_id)
        if call is None:
            if not stream_id & 1 or stream_id >= self._next_id:
                raise ConnectionFault(frames.PROTOCOL_ERROR, f"{what} on stream {stream_id}, which was never open")
            self._budget.spend(f"{what} on ended streams")
        return call

    # ── Frames of the connection ─────────────────────────────────────────────────────────────────────────────────────

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "SETTINGS of a stream")
        self._budget.spend("SETTINGS")
        if flags & frames.ACK:
            return
        for number, value in read_settings(payload).items():
            self._set(number, value)
        self._sending.control(frame(frames.SETTINGS, frames.ACK, 0))
        self.ready = True
        self._open_next()

    def _set(self, number: int, value: int) -> None:
        if number == frames.INITIAL_WINDOW_SIZE:
            change, self._sending.call_window = value - self._sending.call_window, value
            for call in list(self.calls.values()):
                self._sending.widen_call(call, change)
        elif number == frames.MAX_FRAME_SIZE:
            self._sending.frame_bytes = min(value, TURN_BYTES)
        elif number == frames.HEADER_TABLE_SIZE:
            self._blocks.resize(value)
        elif number == frames.MAX_CONCURRENT_STREAMS:
            self._streams_max = min(value, self._limits.streams)
        elif number == frames.ENABLE_PUSH and value:
            self._on_push(0, 0, b"")

    def _on_push(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise ConnectionFault(frames.PROTOCOL_ERROR, "the server pushes, or wants to: that is switched off")

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id or len(payload) != 8:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "a PING has 8 bytes, and is of no stream")
        self._budget.spend("PING")
        if not flags & frames.ACK:
            self._sending.control(frame(frames.PING, frames.ACK, 0, payload))

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        """The server takes no new calls. Those after the last that it took are repeated on another connection."""
        if stream_id:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "GOAWAY of a stream")
        self._budget.spend("GOAWAY")
        last, self.said = goaway(payload)
        self._leave()
        for call in [call for number, call in self.calls.items() if number > last]:
            call.sent = True
            if not self._again(call):
                self._end(call, Status(Code.UNAVAILABLE, self.said or "the server is stopping"))

    def _on_window(self, flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "a WINDOW_UPDATE has 4 bytes")
        self._budget.spend("WINDOW_UPDATE")
        size = U32.unpack(payload)[0] & frames.WINDOW_MAX
        if not size:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "a WINDOW_UPDATE by nothing")
        if not stream_id:
            self._sending.widen(size)
        elif call := self._known(stream_id, "WINDOW_UPDATE"):
            self._sending.widen_call(call, size)

    # ── Ends ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _fault(self, fault: StreamFault) -> None:
        """Ends one stream that breaks the protocol."""
        self._budget.spend("what breaks the protocol")
        if call := self.calls.get(fault.stream_id):
            self._sending.reset(call, fault.code)
            call.sent = True
            self._end(call, Status(Code.INTERNAL, f"the server breaks the protocol: {fault}"))

    def _end_early(self, call: ClientCall, status: Status) -> None:
        """Ends a call whose answer is not wanted any more."""
        self._sending.reset(call, frames.CANCEL)
        call.sent = True
        self._end(call, status)

    def _end(self, call: ClientCall, status: Status) -> None:
        """Ends a call with a status. A server that gets the rest of a request that it has answered gets a reset."""
        if not call.sent:
            self._sending.reset(call, frames.NO_ERROR)
        if call.inbox is not None and status.code is Code.OK:
            try:
                call.inbox.end()
            except Aborted as aborted:
                status = Status(aborted.code, aborted.message)
        del self.calls[call.stream_id]
        call.finish(status)
        self._open_next()

    def _again(self, call: ClientCall) -> bool:
        """Gives a call that the server has not begun back to the channel, if it can be repeated."""
        stream_id = call.stream_id
        if not call.again():
            return False
        self._sending.forget(call)
        del self.calls[stream_id]
        self._repeat(call)
        self._open_next()
        return True

    def _open_next(self) -> None:
        """Opens calls that waited for the server's limit."""
        while self._unopened and not self.leaving and len(self.calls) < self._streams_max:
            self.open(self._unopened.popleft())

    def _leave(self) -> None:
        """Takes no new calls; those that have not begun go to another connection."""
        self.leaving = True
        while self._unopened:
            self._repeat(self._unopened.popleft())
