"""A key that ends while a message of its stream is on its way out: the message goes first, the end follows."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from popmq_server.errors import Refused
from popmq_server.protocols.access.open_streams import OpenStream, OpenStreams


class Context:
    """A call whose client takes a message when it is told to."""

    def __init__(self) -> None:
        self.takes = asyncio.Event()

    async def write(self, _: bytes) -> None:
        await self.takes.wait()


class Open:
    """A stream that writes two messages."""

    def __init__(self) -> None:
        self.context, self.written = Context(), 0
        key: Any = SimpleNamespace(use=SimpleNamespace(bytes_in_flight=0))
        context: Any = self.context
        self.stream = OpenStream(OpenStreams(None), context, key)
        self.handler = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with self.stream as stream:
            for _ in range(2):
                await stream.write(b"message")
                self.written += 1


@pytest.fixture
async def opened() -> Open:
    found = Open()
    await asyncio.sleep(0)  # its first message is on its way
    return found


async def test_a_message_that_is_on_its_way_goes_out_and_the_stream_ends_behind_it(opened: Open) -> None:
    opened.stream.withdraw()
    await asyncio.sleep(0)
    assert not opened.handler.done()
    opened.context.takes.set()
    with pytest.raises(Refused, match="was removed or replaced"):
        await opened.handler
    assert opened.written == 0  # its handler has learnt no more than that the stream has ended


async def test_a_client_that_does_not_take_it_loses_the_stream_at_the_next_look(opened: Open) -> None:
    opened.stream.withdraw()
    opened.stream.withdraw()
    with pytest.raises(Refused, match="was removed or replaced"):
        await opened.handler
