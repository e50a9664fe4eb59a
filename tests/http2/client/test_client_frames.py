"""The client's connection beside a server that does what servers may do, and what they must not."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popmq_http2 import Code
from popmq_http2.client.call import LATE, CallFailed, ClientCall, Status
from popmq_http2.frames import (
    ACK,
    CANCEL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    NO_ERROR,
    PING,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    U32,
    WINDOW_UPDATE,
    frame,
    settings,
)
from popmq_http2.hpack import Header, encode
from tests.http2.client.scripted import HEAD, OK, Scripted, Told


def gone(last: int, code: int = NO_ERROR, why: bytes = b"") -> bytes:
    return frame(GOAWAY, 0, 0, U32.pack(last) + U32.pack(code) + why)


def test_a_call_is_headers_and_one_message_and_its_answer_a_message_and_ok() -> None:
    server, call = Scripted(), Told(b"hello")
    server.connection.open(call)
    head, data = server.read()
    assert (head.kind, head.flags, head.stream_id) == (HEADERS, END_HEADERS, 1)
    assert (data.kind, data.flags, data.payload) == (DATA, END_STREAM, b"\0\0\0\0\x05hello")
    server.head(call)
    server.message(call, b"world")
    assert call.status is None
    assert server.trailers(call) == []
    assert (call.outcome, call.answer()) == (Status(Code.OK), b"world")
    assert (server.buffered.bytes, server.connection.calls) == (0, {})


def test_the_same_call_again_is_the_same_bytes_and_shorter() -> None:
    server = Scripted()
    sizes = []
    for _ in range(3):
        server.connection.open(Told(metadata=(("who", "me"),)))
        sizes.append(server.read()[0].payload)
    assert sizes[1] == sizes[2]
    assert len(sizes[1]) < len(sizes[0]) - 50


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (NO_ERROR, Code.INTERNAL),
        (PROTOCOL_ERROR, Code.INTERNAL),
        (CANCEL, Code.CANCELLED),
        (ENHANCE_YOUR_CALM, Code.RESOURCE_EXHAUSTED),
        (0xC, Code.PERMISSION_DENIED),
        (0xFFFF, Code.INTERNAL),
    ],
)
def test_a_reset_is_the_status_that_grpc_gives_it(code: int, status: Code) -> None:
    server = Scripted()
    call = server.opened()
    server.say(RST_STREAM, 0, 1, U32.pack(code))
    assert call.outcome.code is status


def test_a_refused_call_is_repeated_once_with_all_that_it_said() -> None:
    server = Scripted()
    call = server.opened(Told(b"again"))
    server.say(RST_STREAM, 0, 1, U32.pack(REFUSED_STREAM))
    assert (server.repeated, call.status) == ([call], None)
    server.connection.open(call)
    assert server.read()[1].payload.endswith(b"again")
    server.say(RST_STREAM, 0, 3, U32.pack(REFUSED_STREAM))
    assert (server.repeated, call.outcome.code) == ([call], Code.UNAVAILABLE)


@pytest.mark.mechanism("H.17")
def test_calls_that_the_server_had_not_begun_are_repeated_after_a_goaway() -> None:
    server = Scripted()
    begun, unbegun = server.opened(), server.opened()
    said = server.opened(Told(None, one=False))
    server.feed(gone(begun.stream_id))
    assert server.repeated == [unbegun]
    assert said.outcome.code is Code.UNAVAILABLE  # what a stream has said is not kept
    assert (server.connection.leaving, server.connection.finished) == (True, False)
    server.head(begun)
    server.message(begun, b"done")
    server.trailers(begun)
    assert begun.answer() == b"done"
    assert server.connection.finished


def test_a_call_that_goes_to_another_connection_sends_no_more_on_the_one_before() -> None:
    """It waited there for the window of the connection, and waits for that of the other now."""
    wide = {INITIAL_WINDOW_SIZE: 1 << 20}
    before, after = Scripted(wide), Scripted(wide)
    first, moved = before.opened(Told(bytes(100_000))), before.opened(Told(bytes(200_000)))
    before.feed(gone(first.stream_id))
    assert before.repeated == [moved]
    after.connection.open(moved)
    after.feed(frame(WINDOW_UPDATE, 0, 0, U32.pack(10_000)))
    sent = after.read()
    before.feed(frame(WINDOW_UPDATE, 0, 0, U32.pack(1 << 20)))
    assert sum(len(each.payload) for each in before.read() if each.kind == DATA) == 100_005 - 65_535
    after.feed(frame(WINDOW_UPDATE, 0, 0, U32.pack(1 << 20)))
    assert sum(len(each.payload) for each in (*sent, *after.read()) if each.kind == DATA) == 200_005


def test_a_goaway_with_an_error_says_why() -> None:
    server = Scripted()
    call = server.opened()
    server.feed(gone(1, ENHANCE_YOUR_CALM, b"close some"))
    server.connection.lost("Socket closed")
    assert call.outcome == Status(Code.UNAVAILABLE, "the server ended the connection: close some")


def test_a_lost_connection_ends_all_calls_and_repeats_none_that_may_have_been_done() -> None:
    server = Scripted({MAX_CONCURRENT_STREAMS: 2})
    calls = [server.opened() for _ in range(2)]
    waiting = server.opened()
    server.connection.lost("Socket closed")
    assert [call.outcome.code for call in calls] == [Code.UNAVAILABLE] * 2
    assert (server.repeated, waiting.status) == ([waiting], None)


def test_calls_above_the_servers_limit_wait_for_others_to_end() -> None:
    server = Scripted({MAX_CONCURRENT_STREAMS: 1})
    first, second, third = Told(), Told(), Told()
    for call in (first, second, third):
        server.connection.open(call)
    assert len(server.read()) == 2
    server.connection.cancel(second, Status(Code.CANCELLED))
    server.head(first)
    server.message(first, b"x")
    server.feed(frame(HEADERS, END_HEADERS | END_STREAM, 1, encode(OK)))
    assert [written.stream_id for written in server.read()] == [3, 3]
    assert (second.outcome.code, third.stream_id) == (Code.CANCELLED, 3)


def test_a_request_is_sent_as_far_as_the_windows_allow() -> None:
    server = Scripted({INITIAL_WINDOW_SIZE: 10})
    call = Told(b"x" * 45)
    server.connection.open(call)
    sent = [server.read()[1]]
    sent += server.say(WINDOW_UPDATE, 0, 1, U32.pack(25))
    sent += [
        written
        for written in server.say(SETTINGS, 0, 0, settings({INITIAL_WINDOW_SIZE: 25})[9:])
        if written.kind == DATA
    ]
    assert [(len(data.payload), data.flags) for data in sent] == [(10, 0), (25, 0), (15, END_STREAM)]


def test_the_window_of_the_connection_holds_all_calls_together() -> None:
    server = Scripted({INITIAL_WINDOW_SIZE: 1 << 20})
    for _ in range(3):
        server.connection.open(Told(b"x" * 40_000))
    assert sum(len(data.payload) for data in server.read() if data.kind == DATA) == 65_535
    sent = server.say(WINDOW_UPDATE, 0, 0, U32.pack(1 << 20))
    assert sum(len(data.payload) for data in sent) == 3 * 40_005 - 65_535
    assert sum(data.flags & END_STREAM for data in sent) == 2


def test_calls_that_end_while_the_window_of_the_connection_is_used_up_are_not_kept() -> None:
    """Of a server that is stopped behind a proxy, for example: each call ends by its deadline, with its request."""
    server = Scripted({INITIAL_WINDOW_SIZE: 1 << 20})
    first, said = server.opened(Told(bytes(100_000))), server.opened(Told(None, one=False))
    for _ in range(100):
        call = server.opened(Told(bytes(1_000)))
        said.say(b"more")
        server.connection.send(said)
        server.read()
        server.connection.cancel(call, LATE)
    assert len(server.connection._sending._starved) == 2
    server.say(WINDOW_UPDATE, payload=U32.pack(1 << 20))
    server.read()
    assert (first.sent, said.out) == (True, deque())


def test_a_server_may_return_the_window_frame_by_frame_for_as_long_as_the_client_sends() -> None:
    """As some proxies do: two WINDOW_UPDATE for each DATA."""
    server = Scripted(budget=100, budget_per_s=0)
    for _ in range(3):
        call = Told(bytes(1 << 20))
        server.connection.open(call)
        while not call.sent:
            assert not server.connection.why
            for data in (each for each in server.read() if each.kind == DATA):
                size = U32.pack(len(data.payload))
                server.feed(frame(WINDOW_UPDATE, 0, 0, size) + frame(WINDOW_UPDATE, 0, data.stream_id, size))
        server.read()
        server.head(call)
        server.message(call, b"done")
        server.trailers(call)
        assert call.outcome.code is Code.OK


@pytest.mark.mechanism("H.20")
def test_a_stream_that_is_not_read_gets_no_more_window() -> None:
    server = Scripted(stream_window=1000)
    call = server.opened(Told(one=False))
    server.head(call)
    assert server.message(call, b"x" * 700) == []
    assert call.heards == 1
    assert call.take() == b"x" * 700
    server.connection.taken(call)
    (back,) = server.read()
    assert (back.kind, back.stream_id, U32.unpack(back.payload)[0]) == (WINDOW_UPDATE, 1, 705)


def test_a_server_that_ignores_the_window_of_a_stream_ends_it() -> None:
    server = Scripted(stream_window=1000)
    call = server.opened(Told(one=False))
    server.head(call)
    server.message(call, b"x" * 700)
    (reset,) = server.message(call, b"x" * 400)
    assert (reset.kind, U32.unpack(reset.payload)[0], call.outcome.code) == (
        RST_STREAM,
        FLOW_CONTROL_ERROR,
        Code.INTERNAL,
    )


def test_a_cancelled_call_is_reset_and_what_still_comes_for_it_is_ignored() -> None:
    server = Scripted()
    call = server.opened()
    server.connection.cancel(call, Status(Code.CANCELLED, "enough"))
    (reset,) = server.read()
    assert (reset.kind, U32.unpack(reset.payload)[0]) == (RST_STREAM, CANCEL)
    server.head(call)
    server.message(call, b"late")
    server.trailers(call)
    assert call.outcome == Status(Code.CANCELLED, "enough")
    assert not server.connection.why


def test_an_answer_before_the_whole_request_stops_the_sending() -> None:
    server = Scripted({INITIAL_WINDOW_SIZE: 10})
    call = server.opened(Told(b"x" * 100))
    (reset,) = server.trailers(call, [*HEAD, (b"grpc-status", b"8")])
    assert (reset.kind, U32.unpack(reset.payload)[0]) == (RST_STREAM, NO_ERROR)
    assert call.outcome.code is Code.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([(b":status", b"503")], Code.UNAVAILABLE),
        ([(b":status", b"404"), (b"content-type", b"text/html")], Code.UNIMPLEMENTED),
        ([(b":status", b"418")], Code.UNKNOWN),
        ([(b":status", b"200"), (b"content-type", b"text/html")], Code.UNKNOWN),
        ([*HEAD, (b"grpc-status", b"99")], Code.UNKNOWN),
        ([*HEAD, (b"grpc-status", b"9" * 5_000)], Code.UNKNOWN),
        ([(b":status", b"2" * 5_000), (b"content-type", b"application/grpc")], Code.INTERNAL),
        (HEAD, Code.UNKNOWN),
        ([(b":status", b"200"), (b"connection", b"close")], Code.INTERNAL),
        ([(b":status", b"2oo"), (b"content-type", b"application/grpc")], Code.INTERNAL),
        ([*HEAD, (b"grpc-status", b"0"), (b"broken-bin", b"***")], Code.INTERNAL),
    ],
)
def test_an_answer_that_is_not_grpc_becomes_a_status(headers: list[Header], status: Code) -> None:
    server = Scripted()
    call = server.opened()
    server.trailers(call, headers)
    assert call.outcome.code is status
    assert not server.connection.why


def test_a_status_comes_with_its_text_and_metadata() -> None:
    server = Scripted()
    call = server.opened()
    trailers = [(b"grpc-status", b"9"), (b"grpc-message", b"%C3%9Fo %+4 not 100%  "), (b"why-bin", b"AQ")]
    server.trailers(call, [*HEAD, *trailers])
    assert call.outcome == Status(Code.FAILED_PRECONDITION, "ßo %+4 not 100%  ", (("why-bin", b"\x01"),))
    with pytest.raises(CallFailed, match="ßo %"):
        call.answer()


@pytest.mark.parametrize("count", [0, 2])
def test_ok_with_another_number_of_messages_than_one_is_no_answer(count: int) -> None:
    server = Scripted()
    call = server.opened()
    server.head(call)
    for _ in range(count):
        server.message(call, b"x")
    server.trailers(call)
    assert (call.outcome.code, server.buffered.bytes) == (Code.INTERNAL, 0)


def test_a_message_above_the_limit_ends_its_call_and_no_other() -> None:
    server = Scripted(message_bytes=10)
    large, small = server.opened(), server.opened()
    server.head(large)
    server.head(small)
    (reset,) = server.message(large, b"x" * 11)
    assert (reset.kind, reset.stream_id, large.outcome.code) == (RST_STREAM, 1, Code.RESOURCE_EXHAUSTED)
    server.message(small, b"x")
    server.trailers(small)
    assert (small.answer(), server.buffered.bytes) == (b"x", 0)


BREAKS = {
    "a frame on a stream that was never open": frame(DATA, 0, 9, b"x"),
    "a push": frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\2"),
    "a frame that is larger than allowed": b"\xff\0\0\0\0\0\0\0\1",
    "headers that cannot be decoded": frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
    "headers without an end": frame(HEADERS, 0, 1, b"\x88") + frame(CONTINUATION, 0, 1, b"\x88" * 9000) * 9,
    "a header bomb": frame(HEADERS, END_HEADERS, 1, b"\x40\x01a\x7f\x81\x1f" + b"x" * 4000 + b"\xbe" * 4000),
    "a PING of seven bytes": frame(PING, 0, 0, b"x" * 7),
    "a window by nothing": frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\0"),
    "a window above its limit": frame(WINDOW_UPDATE, 0, 0, U32.pack((1 << 31) - 1)),
    "a flood of PINGs": frame(PING, 0, 0, b"x" * 8) * 20_000,
    "a flood of empty DATA": frame(DATA, 0, 1) * 20_000,
    "a flood of SETTINGS": settings({}) * 20_000,
    "HTTP/1.1 in the middle": b"HTTP/1.1 400 Bad Request\r\n\r\n",
}


@pytest.mark.parametrize("raw", BREAKS.values(), ids=BREAKS)
def test_a_server_that_breaks_the_protocol_loses_the_connection_and_its_calls_end(raw: bytes) -> None:
    server = Scripted()
    call = server.opened()
    server.head(call)
    server.feed(raw)
    assert server.read()[-1].kind == GOAWAY
    assert call.outcome.code is Code.UNAVAILABLE
    assert server.connection.finished


FAULTS = {
    "DATA before the head": frame(DATA, 0, 1, b"x"),
    "two heads": frame(HEADERS, END_HEADERS, 1, encode(HEAD)) * 2,
    "capitals": frame(HEADERS, END_HEADERS, 1, encode([*HEAD, (b"Big", b"x")])),
}


@pytest.mark.parametrize("raw", FAULTS.values(), ids=FAULTS)
def test_a_stream_that_breaks_the_protocol_ends_and_its_neighbour_goes_on(raw: bytes) -> None:
    server = Scripted()
    call, other = server.opened(), server.opened()
    server.feed(raw)
    assert server.read()[-1].kind == RST_STREAM
    assert call.outcome.code is Code.INTERNAL
    server.head(other)
    server.message(other, b"fine")
    server.trailers(other)
    assert other.answer() == b"fine"


def test_a_ping_is_answered_and_ours_ends_with_any_sign_of_life() -> None:
    server = Scripted()
    assert server.say(PING, 0, 0, b"are you?") == [(PING, ACK, 0, b"are you?")]
    server.connection.ping()
    assert [written.kind for written in server.read()] == [PING]
    assert server.connection.asked
    server.say(PING, ACK, 0, b"keepaliv")
    assert not server.connection.asked


def test_metadata_that_cannot_be_sent_end_their_call_only() -> None:
    server = Scripted()
    assert server.opened(Told(metadata=(("Big", "x"),))).outcome.code is Code.INTERNAL
    assert server.opened().stream_id == 1


def test_a_closed_connection_ends_its_calls_and_says_goodbye() -> None:
    server = Scripted()
    call = server.opened()
    server.connection.close(Status(Code.CANCELLED, "closed"))
    assert [written.kind for written in server.read()] == [RST_STREAM, GOAWAY]
    assert call.outcome.code is Code.CANCELLED


def answered(cuts: list[int]) -> list[tuple[Status | None, int]]:
    """What becomes of three calls whose answers arrive cut into pieces."""
    server = Scripted(stream_window=1 << 20)
    calls: list[ClientCall] = [server.opened(), server.opened(Told(one=False)), server.opened()]
    raw = b"".join(
        (
            frame(HEADERS, 0, 1, encode(HEAD)[:9]) + frame(CONTINUATION, END_HEADERS, 1, encode(HEAD)[9:]),
            frame(HEADERS, END_HEADERS, 3, encode(HEAD)),
            *(frame(DATA, 0, 3, b"\0\0\0\0\x05abcde"[:7]) + frame(DATA, 0, 3, b"cde") for _ in range(3)),
            frame(DATA, 0, 1, b"\0\0\0\0\x01x"),
            frame(PING, 0, 0, b"12345678"),
            frame(HEADERS, END_HEADERS | END_STREAM, 1, encode(OK)),
            frame(HEADERS, END_HEADERS | END_STREAM, 3, encode([(b"grpc-status", b"5")])),
            frame(RST_STREAM, 0, 5, U32.pack(CANCEL)),
        )
    )
    at = 0
    for cut in sorted(cut % len(raw) for cut in cuts):
        server.feed(raw[at:cut])
        at = cut
    server.feed(raw[at:])
    return [(call.status, len(call.inbox.messages) if call.inbox else -1) for call in calls]


@given(st.lists(st.integers(0, 400), max_size=30))
def test_answers_do_not_depend_on_how_bytes_are_cut(cuts: list[int]) -> None:
    assert answered(cuts) == answered([])


@pytest.mark.slow
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.builds(
                frame,
                st.integers(0, 11),
                st.integers(0, 255),
                st.integers(0, 8),
                st.one_of(st.binary(max_size=20), st.just(encode(HEAD)), st.just(encode(OK)), st.just(b"\0\0\0\0\0")),
            ),
        ),
        max_size=25,
    )
)
def test_no_bytes_of_a_server_raise_or_leave_a_call_without_an_end(parts: list[bytes]) -> None:
    server = Scripted()
    calls = [server.opened(), server.opened(Told(one=False)), server.opened(Told(None, one=False))]
    for part in parts:
        server.feed(part)
        server.read()
    server.connection.lost("Socket closed")
    server.read()
    for call in calls:
        assert call.status is not None or call in server.repeated
        assert call.ends <= 1
        call.free()
    assert server.buffered.bytes == 0
