"""Authentication: identifies the caller of each call and stream, on every port, before its handler is looked up.

call ──▶ Authentication ──▶ CALLER (access_keys.py) ──▶ handler ──▶ Guarded: checks the caller's permissions
              ├─ no key ──▶ UNAUTHENTICATED, for any method; apache.rocketmq.v2 reports it in its own answers
              └─ too many calls of the key ──▶ RATE_LIMITED, in the same way
"""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from popmq_server.access.access_keys import CALLER, Key
from popmq_server.access.key_limits import KeyLimited
from popmq_server.access.known_keys import Keys
from popmq_server.api.native.status import refuse
from popmq_server.clock import pause
from popmq_server.errors import Refused
from popmq_server.monitoring.metrics import Metrics

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


class Authentication(grpc.aio.ServerInterceptor):  # type: ignore[misc, unused-ignore]
    """`answers_itself`: the path prefix of methods that refuse by themselves, through `access_keys.caller`."""

    def __init__(self, keys: Keys, metrics: Metrics, answers_itself: str) -> None:
        self._keys = keys
        self._metrics = metrics
        self._answers_itself = answers_itself
        # A bidirectional stream fits every call: it reads nothing, and aborts before it answers.
        self._refusing: Any = grpc.stream_stream_rpc_method_handler(_refuse)

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """Sets CALLER and returns the handler; grpcio runs it in the same task, so it sees the caller."""
        authorization = date_time = ""
        for name, value in details.invocation_metadata:
            if name == "authorization":
                authorization = value
            elif name == "x-mq-date-time":
                date_time = value
        try:
            key = self._keys.caller(authorization, date_time)
            CALLER.set(key)
            try:
                self._keys.admit(key, details.method in _SETTLING)
            except KeyLimited as refused:
                await _hold(key, refused, getattr(details, "size", HELD_BYTES_MAX + 1))
                raise
        except Refused as refused:
            CALLER.set(refused)
            if not details.method.startswith(self._answers_itself):
                self._metrics.refusals.labels(refused.code).inc()
                return self._refusing
        return await continuation(details)


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
