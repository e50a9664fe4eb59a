"""Attacks on the port of HTTP with JSON: endless iterators of what a hostile client sends on one connection."""

import gzip
from collections.abc import Callable
from itertools import count, repeat

from harness.attacks import Pieces

HOST = b"Host: 127.0.0.1\r\n"
JSON = HOST + b"Content-Type: application/json\r\n"


def post(path: bytes, headers: bytes) -> bytes:
    """The head of a call."""
    return b"POST " + path + b" HTTP/1.1\r\n" + headers + b"\r\n"


def call(path: bytes, body: bytes, headers: bytes = JSON) -> bytes:
    """A whole call."""
    return post(path, headers + b"Content-Length: %d\r\n" % len(body)) + body


def slow_head(path: bytes) -> bytes:
    """Slowloris: what a client sends that never ends its head."""
    return b"POST " + path + b" HTTP/1.1\r\n" + HOST


def slow_body(path: bytes) -> bytes:
    """What a client sends that never ends its body."""
    return post(path, JSON + b"Content-Length: 1000000\r\n") + b"{"


def endless_head(path: bytes) -> Pieces:
    """A head that never ends."""
    yield slow_head(path)
    yield from (b"x-%d: y\r\n" % number for number in count())


def huge_header(path: bytes) -> Pieces:
    """One header that never ends."""
    yield slow_head(path) + b"x: "
    yield from repeat(b"y" * 4_000)


def header_flood(path: bytes) -> Pieces:
    """Calls with as many headers as fit, all different."""
    for number in count():
        yield call(path, b"{}", JSON + b"".join(b"x-%d-%d: y\r\n" % (number, place) for place in range(1_500)))


def endless_body(path: bytes) -> Pieces:
    """A body in large chunks, without an end."""
    yield post(path, JSON + b"Transfer-Encoding: chunked\r\n")
    yield from repeat(b"10000\r\n" + b" " * 0x10000 + b"\r\n")


def tiny_chunks(path: bytes) -> Pieces:
    """A body in chunks of one byte."""
    yield post(path, JSON + b"Transfer-Encoding: chunked\r\n")
    yield from repeat(b"1\r\n \r\n")


def pipelined(path: bytes) -> Pieces:
    """Calls, one after the other, without a wait for their answers."""
    return repeat(call(path, b"{}"))


def no_http(path: bytes) -> Pieces:
    """Bytes of another protocol."""
    return repeat(b"\x16\x03\x01" + b"\0" * 61)


def deep_json(path: bytes) -> Pieces:
    """JSON of 2 MiB that is nothing but brackets."""
    return repeat(call(path, b"[" * (2 << 20)))


def wide_json(path: bytes) -> Pieces:
    """JSON with as many elements as are read, all unknown."""
    return repeat(call(path, b'{"x": [' + b"0," * 190_000 + b"0]}"))


def gzip_bomb(path: bytes) -> Pieces:
    """20 KiB of gzip that expand to 20 MiB."""
    return repeat(call(path, gzip.compress(b" " * (20 << 20)), JSON + b"Content-Encoding: gzip\r\n"))


ATTACKS: dict[str, Callable[[bytes], Pieces]] = {
    attack.__name__: attack
    for attack in (
        endless_head, huge_header, header_flood, endless_body, tiny_chunks, pipelined, no_http, deep_json, wide_json,
        gzip_bomb,
    )
}  # fmt: skip
