"""Taps between gateways and a cluster: they hold one request or answer, so that a gateway dies at a chosen point.

gateway ──▶ tap of the name server    answers name the taps of the brokers instead of the brokers
   └──────▶ tap of a broker           `catch` keeps the next request of a code, or its answer, to itself

with Taps(cluster) as taps:
    caught = taps.catch(RequestCode.POP_MESSAGE, ANSWER)
    …
    caught.wait()          the broker has carried it out, and its gateway will never know
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple

from harness.rocketmq_cluster import RocketMQCluster
from popmq_remoting import RequestCode
from tests.crash.cluster.parts.relay import CUT_BYTES_MAX, Balancer, CuttingBalancer, Stream

REQUEST, ANSWER = "request", "answer"
CAUGHT_S = 30.0
_RESPONSE = 1


class Frame(NamedTuple):
    """One command as it travels."""

    raw: bytes
    header: dict[str, Any]

    @property
    def is_answer(self) -> bool:
        return bool(self.header["flag"] & _RESPONSE)


class Caught:
    """What `Taps.catch` waits for. It never arrives where it was sent to."""

    def __init__(self, code: int, kind: str) -> None:
        self.code, self.kind = code, kind
        self._happened = threading.Event()

    def wait(self) -> None:
        """Returns when it was caught. Raises AssertionError."""
        assert self._happened.wait(CAUGHT_S), f"no {self.kind} of {self.code} came"

    def fits(self, code: int, frame: Frame) -> bool:
        """Whether this is it. Answers that do nothing, such as that of a pop that found nothing, are let through."""
        return (
            code == self.code
            and frame.is_answer == (self.kind == ANSWER)
            and not (frame.is_answer and frame.header["code"])
        )

    def happened(self) -> None:
        self._happened.set()


class _BrokerTap(Balancer):
    def __init__(self, port: int, caught: list[Caught]) -> None:
        super().__init__([port])
        self._caught = caught

    async def passed(self, near: Stream, far: Stream) -> None:
        asked = dict[int, int]()
        await asyncio.gather(self._frames(near, far, asked), self._frames(far, near, asked))

    async def _frames(self, source: Stream, sink: Stream, asked: dict[int, int]) -> None:
        try:
            with contextlib.suppress(OSError):
                async for frame in _frames(source.reader):
                    number = frame.header["opaque"]
                    code = asked.pop(number, 0) if frame.is_answer else frame.header["code"]
                    if not frame.is_answer:
                        asked[number] = code
                    if not self._catches(code, frame):
                        sink.writer.write(frame.raw)
                        await sink.writer.drain()
        finally:
            sink.writer.close()

    def _catches(self, code: int, frame: Frame) -> bool:
        for caught in self._caught:
            if caught.fits(code, frame):
                self._caught.remove(caught)
                caught.happened()
                return True
        return False


class _NameServerTap(Balancer):
    """Replaces addresses in answers. All have as many digits: a frame keeps its length."""

    def __init__(self, port: int, addresses: Mapping[bytes, bytes]) -> None:
        super().__init__([port])
        self._addresses = addresses

    async def passed(self, near: Stream, far: Stream) -> None:
        await asyncio.gather(self._copy(near.reader, far.writer), self._replaced(far, near))

    async def _replaced(self, source: Stream, sink: Stream) -> None:
        try:
            with contextlib.suppress(OSError):
                async for frame in _frames(source.reader):
                    raw = frame.raw
                    for own, tap in self._addresses.items():
                        raw = raw.replace(own, tap)
                    sink.writer.write(raw)
                    await sink.writer.drain()
        finally:
            sink.writer.close()


class Taps:
    """`with Taps(cluster) as taps:` – gateways reach it by `taps.name_server`. `make`: the relay before a broker."""

    def __init__(self, cluster: RocketMQCluster, make: Callable[[int], Balancer] | None = None) -> None:
        self._cluster, self._caught = cluster, list[Caught]()
        make = make or (lambda port: _BrokerTap(port, self._caught))
        self.brokers = {name: make(cluster.port(name)) for name in cluster.brokers}
        self.name_server = ""

    def catch(self, code: RequestCode, kind: str) -> Caught:
        """Keeps the next request of this code, or the next answer 0 to one."""
        caught = Caught(code, kind)
        self._caught.append(caught)
        return caught

    def __enter__(self) -> Taps:
        addresses = {}
        for name, tap in self.brokers.items():
            tap.start()
            addresses[f"127.0.0.1:{self._cluster.port(name)}".encode()] = tap.endpoint.encode()
        assert len({len(each) for pair in addresses.items() for each in pair}) == 1, "addresses of one length"
        self._names = _NameServerTap(self._cluster.port("namesrv"), addresses)
        self.name_server = self._names.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for tap in (self._names, *self.brokers.values()):
            tap.stop()


def cutting(chance: random.Random, bytes_max: int = CUT_BYTES_MAX) -> Callable[[int], CuttingBalancer]:
    """Relays for `Taps` that cut connections."""
    return lambda port: CuttingBalancer([port], chance, bytes_max)


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[Frame]:
    """The frames of one direction, until it ends; RocketMQ's answers have JSON headers, as their requests have."""
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            head = await reader.readexactly(4)
            rest = await reader.readexactly(int.from_bytes(head, "big"))
            size = int.from_bytes(rest[1:4], "big")
            yield Frame(head + rest, json.loads(rest[4 : 4 + size]))
