"""Authentication: identifies the caller of each call and stream, on every port, before its handler is looked up.

call ──▶ Authentication ──▶ CALLER (access_keys.py) ──▶ handler ──▶ Guarded: checks the caller's permissions
              ├─ a signature, else the names in the client's certificate ──▶ the key
              ├─ no key ──▶ UNAUTHENTICATED, for any method; apache.rocketmq.v2 reports it in its own answers
              └─ too many calls of the key ──▶ RATE_LIMITED, in the same way
"""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from popmq_server.clock import pause
from popmq_server.errors import Refused
from popmq_server.monitoring.metrics import Metrics
from popmq_server.protocols.access.access_keys import CALLER, Key, unauthenticated
from popmq_server.protocols.access.key_limits import KeyLimited
from popmq_server.protocols.access.known_keys import Keys
from popmq_server.protocols.refusals import refuse

#: How long the answer to a refused call is held, in ms; for how many calls of a key, and for which requests.
HELD_MS_MAX, HELD_MAX, HELD_BYTES_MAX = 500, 1_024, 64 << 10
#: Calls that end work, or tell of its end: a client that made too many others can still make these.
_SETTLING = frozenset(
    f"/{service}/{name}"
    for service, names in {
        "popmq.v1.Broker": "Ack AckUpTo ChangeInvisibleTime EndTransaction Heartbeat ReleaseOwner RenewOwner SendBack "
        "UnlockQueues UpdateOffsets",
        "apache.rocketmq.v2.MessagingService": "AckMessage ChangeInvisibleDuration EndTransaction Heartbeat "
        "ForwardMessageToDeadLetterQueue NotifyClientTermination Telemetry UpdateOffset",
    }.items()
    for name in names.split()
)


class Authentication(grpc.aio.ServerInterceptor):  # type: ignore[misc, unused-ignore]  # untyped without the stubs of grpc.aio
    """`answers_itself`: the path prefix of methods that refuse by themselves, through `access_keys.caller`."""

    def __init__(self, keys: Keys, metrics: Metrics, answers_itself: str) -> None:
        self._keys = keys
        self._metrics = metrics
        self._answers_itself = answers_itself
        # A bidirectional stream fits every call: it reads nothing, and aborts before it answers.
        self._refusing: Any = grpc.stream_stream_rpc_method_handler(_refuse)

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """Sets CALLER and returns the handler; grpcio runs it in the same task, so it sees the caller."""
        authorization, date_time = _signed(details.invocation_metadata)
        context = getattr(details, "context", None)
        if authorization or context is not None or not self._keys.takes_certificates:
            size = getattr(details, "size", HELD_BYTES_MAX + 1)
            if not await self._identifies(details.method, (authorization, date_time), context, size):
                return self._refusing
            return await continuation(details)
        handler = await continuation(details)
        return self._refusing_unknown() if handler is None else self._later(details.method, handler)

    async def _identifies(self, method: str, signed: tuple[str, str], context: Any, size: int) -> bool:
        """Sets CALLER; whether the handler may run. A signature decides before a certificate."""
        try:
            key = self._key(signed, context)
            CALLER.set(key)
            try:
                self._keys.admit(key, method in _SETTLING)
            except KeyLimited as refused:
                await _hold(key, refused, size)
                raise
        except Refused as refused:
            CALLER.set(refused)
            if not method.startswith(self._answers_itself):
                self._metrics.refusals.labels(refused.code).inc()
                return False
        return True

    def check(self, context: Any) -> None:
        """Raises Refused for a call without a valid key, before its request has arrived.

        A transport keeps large requests only for callers that have one. The call is counted when it begins.
        """
        try:
            self._key(_signed(context.invocation_metadata()), context)
        except Refused as refused:
            self._metrics.refusals.labels(refused.code).inc()
            raise

    def _key(self, signed: tuple[str, str], context: Any) -> Key:
        """The caller's key. Raises Refused UNAUTHENTICATED."""
        return self._keys.caller(*signed) if signed[0] or context is None else self._certified(context)

    def _certified(self, context: Any) -> Key:
        """The key of the client's certificate. Raises Refused UNAUTHENTICATED.

        Names of different kinds may be equal, and an authority may let a person choose one kind but not the others.
        """
        shown = context.auth_context()
        raw = [*shown.get("peer_dns", ()), *shown.get("peer_uri", ())] or shown.get("x509_common_name", ())
        names = [name.decode(errors="replace") for name in raw]
        return self._keys.certified(names) if names else self._keys.caller("", "")

    def _refusing_unknown(self) -> Any:
        """Refuses a method that does not exist, before its caller learns that."""
        CALLER.set(unauthenticated("an unknown method needs an access key as any other"))
        return self._refusing

    def _later(self, method: str, handler: Any) -> Any:
        """The handler for a caller that has only a certificate: grpcio shows it to handlers, not to interceptors."""

        async def run(request: Any, context: Any) -> Any:
            if not await self._identifies(method, ("", ""), context, HELD_BYTES_MAX + 1):
                await _refuse(request, context)
            kinds = handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream
            answer = next(filter(None, kinds))(request, context)
            if not hasattr(answer, "__anext__"):
                return await answer
            async for message in answer:
                await context.write(message)
            return None

        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[handler.request_streaming, handler.response_streaming]
        return make(run, handler.request_deserializer, handler.response_serializer)


def _signed(metadata: Any) -> tuple[str, str]:
    """The two headers that prove a call, "" for one that is missing."""
    authorization = date_time = ""
    for name, value in metadata:
        if name == "authorization":
            authorization = value
        elif name == "x-mq-date-time":
            date_time = value
    return authorization, date_time


async def _hold(key: Key, refused: KeyLimited, size: int) -> None:
    """Waits with the answer to a refused call, so that a client that calls again at once is slowed down.

    Else it would cost as much as if it were served. The time that its client waits becomes less by this. Large requests
    are not held, nor any with grpcio, which does not tell their sizes.
    """
    held_ms = min(refused.retry_after_ms, HELD_MS_MAX)
    if size > HELD_BYTES_MAX or key.use.held >= HELD_MAX:
        return
    key.use.held += 1
    try:
        await pause(held_ms / 1000)
    finally:
        key.use.held -= 1
    refused.tell(refused.retry_after_ms - held_ms)


async def _refuse(requests: Any, context: Any) -> None:
    refused = CALLER.get()
    assert isinstance(refused, Refused)
    await refuse(context, refused)
