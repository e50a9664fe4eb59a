"""The calls: from (method, path, headers, body) to an answer, by the handlers that gRPC has.

    find the method ─▶ who calls ─▶ JSON → protobuf ─▶ its handler, within Connect-Timeout-Ms ─▶ protobuf → JSON

The JSON is protobuf's (bytes are base64, int64 are texts, fields are lowerCamelCase; the names of the contract are
taken too). Large JSON is translated in a thread: it takes milliseconds, in which no other client would be served.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from popmq_http2 import Aborted, Code
from popmq_http2.status import QUOTED_MAX
from popmq_server.errors import Refused
from popmq_server.protocols.connect import json_text
from popmq_server.protocols.connect.answers import JSON, PROTO, Answer, error
from popmq_server.protocols.connect.call import HttpCall
from popmq_server.protocols.connect.reading import Asked, Content, content, timeout_s, unpacked
from popmq_server.protocols.refusals import aborted
from popmq_server.protocols.transport import ServedMethod

if TYPE_CHECKING:
    from popmq_server.protocols.authentication import Authentication

#: JSON of more bytes is translated in a thread: it takes 1 ms.
ASIDE_BYTES = 16 << 10
_STREAMED = "a call with a stream needs gRPC: this port serves unary calls"


class _Method(NamedTuple):
    """A method that is served. `reads`: without side effects, so GET is allowed."""

    handle: Callable[..., Awaitable[object]]
    request: type[Message]
    response: type[Message]
    reads: bool


class Unary:
    """The methods of popmq.v1. `authentication` None: no call needs an access key."""

    def __init__(self, authentication: "Authentication | None") -> None:
        self._authentication = authentication
        self._methods: dict[str, _Method | None] = {}
        self._aside = ThreadPoolExecutor(1, "popmq-json")

    def register(
        self, service: str, methods: Mapping[str, ServedMethod], described: Mapping[str, MethodDescriptor]
    ) -> None:
        """Adds the methods of a service; those with streams are known, and refused."""
        for name, served in methods.items():
            path, method = f"/{service}/{name}", described[name]
            if served.streams_in or served.streams_out:
                self._methods[path] = None
                continue
            reads = method.GetOptions().idempotency_level == MethodOptions.NO_SIDE_EFFECTS
            kinds = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
            self._methods[path] = _Method(served.handle, *kinds, reads)

    def close(self) -> None:
        self._aside.shutdown(wait=False, cancel_futures=True)

    def may_send(self, call: HttpCall) -> None:
        """Raises Aborted unless the caller has a key: before its request is read."""
        if self._authentication is not None:
            try:
                self._authentication.check(call)
            except Refused as refused:
                raise aborted(refused) from None

    async def answer(self, asked: Asked, call: HttpCall) -> Answer:
        """What becomes of a request; never raises but for a cancellation."""
        try:
            return await self._answer(asked, call)
        except Aborted as ended:
            return error(ended)
        except Refused as refused:
            return error(aborted(refused))
        except TimeoutError:
            return error(Aborted(Code.DEADLINE_EXCEEDED, "the deadline has passed"))

    async def _answer(self, asked: Asked, call: HttpCall) -> Answer:
        path = call.path
        if path not in self._methods:
            why = f"there is no method {path[:QUOTED_MAX]}: paths are /popmq.v1.Broker/Send and so on"
            return error(Aborted(Code.UNIMPLEMENTED, why), 404)
        method = self._methods[path]
        if method is None:
            raise Aborted(Code.UNIMPLEMENTED, _STREAMED)
        verbs = ("POST", "GET") if method.reads else ("POST",)
        if asked.verb not in verbs:
            why = f"{path} is called with {' or '.join(verbs)}"
            return error(Aborted(Code.UNIMPLEMENTED, why), 405, headers=(("allow", ", ".join(verbs)),))
        given = content(asked)
        if given.kind is None:
            why = f"a call has the content-type {JSON} or {PROTO}: send one of them"
            return error(Aborted(Code.UNIMPLEMENTED, why), 415, headers=(("accept-post", f"{JSON}, {PROTO}"),))
        limit_s = timeout_s(asked.headers.get("connect-timeout-ms"))
        if limit_s is not None:
            call.within(limit_s)
        async with asyncio.timeout(limit_s):
            answer = await self._called(method, given, call)
        return Answer(200, given.kind, answer)

    async def _called(self, method: _Method, given: Content, call: HttpCall) -> bytes:
        authentication, raw = self._authentication, given.raw
        if authentication is not None and not await authentication.identifies(
            call.path, call.invocation_metadata(), call, len(raw)
        ):
            await authentication.refuse(call)
        if given.is_packed:
            raw = await self._aside_from_others(unpacked, raw)
        if given.kind == JSON:
            raw = await self._translated(raw, functools.partial(json_text.encoded, method.request))
        answer = await method.handle(raw, call)
        assert isinstance(answer, bytes)  # a refusal raises Aborted
        if given.kind == JSON:
            answer = await self._translated(answer, functools.partial(json_text.decoded, method.response))
        return answer

    async def _translated(self, raw: bytes, translate: Callable[[bytes], bytes]) -> bytes:
        return translate(raw) if len(raw) <= ASIDE_BYTES else await self._aside_from_others(translate, raw)

    async def _aside_from_others(self, work: Callable[[bytes], bytes], raw: bytes) -> bytes:
        """Does what takes long in the thread, one request after the other."""
        return await asyncio.get_running_loop().run_in_executor(self._aside, work, raw)
