"""The client's headers, which come with each call, and the stream on which the broker sends it commands."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from popmq_http2 import Arrival
from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_server.clock import pause
from popmq_server.protocols.access import access_keys
from popmq_server.protocols.access.access_keys import Key
from popmq_server.protocols.access.call_context import CallContext
from popmq_server.protocols.rocketmq.status import Declined

log = logging.getLogger("popmq.protocols")

#: Client ids hold a host name, a process id and a number; each lease stores one.
CLIENT_ID_CHARACTERS_MAX = 512
#: Headers are read as Latin-1, where parts of other characters look like the controls above these.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class RocketmqCall(NamedTuple):
    """Header values are opaque texts, "" when absent.

    `language`: JAVA, GO, PYTHON, RUST, DOTNET, CPP, HTTP (that is Node). `remaining_s`: seconds until the client's
    deadline, None without one. `on_arrival`: of a stream, Call.add_arrival_callback; None where the transport lacks it.
    """

    client_id: str
    language: str
    namespace: str
    remaining_s: Callable[[], float | None]
    on_arrival: Callable[[Callable[[Arrival], object]], None] | None = None

    @property
    def is_node(self) -> bool:
        return self.language == "HTTP"

    def check(self) -> None:
        """Raises Refused for callers without an access key, and Declined CLIENT_ID_REQUIRED: the broker keeps a
        client's state under its id.
        """
        access_keys.caller()
        if not self.client_id.strip():
            raise Declined(pb.CLIENT_ID_REQUIRED, "the header x-mq-client-id is missing")
        if len(self.client_id) > CLIENT_ID_CHARACTERS_MAX:
            raise Declined(pb.BAD_REQUEST, f"the header x-mq-client-id has over {CLIENT_ID_CHARACTERS_MAX} characters")
        if _CONTROL.search(self.client_id):
            raise Declined(pb.BAD_REQUEST, "the header x-mq-client-id has a control character in it")


def call_of(context: CallContext) -> RocketmqCall:
    """Reads the headers of a call."""
    headers: dict[str, str] = dict(context.invocation_metadata() or ())  # type: ignore[arg-type]  # bytes are in -bin
    said = headers.get
    client_id, language, namespace = said("x-mq-client-id", ""), said("x-mq-language", ""), said("x-mq-namespace", "")
    return RocketmqCall(client_id, language, namespace, context.time_remaining)


#: Pauses before each repeat of an answer with settings, in seconds.
REPEATS_S = (0.3, 1.0)


class TelemetryStream:
    """One Telemetry stream: sends commands to its client, one at a time. `key`: the access key that opened it."""

    def __init__(self, write: Callable[[bytes], Awaitable[None]], key: Key | None = None) -> None:
        self.key = key
        self._write = write
        self._turn = asyncio.Lock()
        self._repeating: asyncio.Task[None] | None = None

    async def write(self, command: rpc.TelemetryCommand) -> None:
        """Returns when the command was passed to the connection; raises when that is closed."""
        async with self._turn:
            await self._write(command.SerializeToString())

    def repeat(self, command: rpc.TelemetryCommand) -> None:
        """Sends an answer again after each pause, twice in all; replaces the repeats of an earlier answer."""
        self.close()
        self._repeating = asyncio.ensure_future(self._repeat(command))

    async def _repeat(self, command: rpc.TelemetryCommand) -> None:
        for pause_s in REPEATS_S:
            await pause(pause_s)
            try:
                await self.write(command)
            except Exception:
                log.debug("an answer was not repeated", exc_info=True)

    def close(self) -> None:
        """Ends the repeats."""
        if self._repeating is not None:
            self._repeating.cancel()
