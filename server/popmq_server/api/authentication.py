"""Who calls: asked once for each call and stream, of every service on every port, before its handler is looked for.

call ──▶ Authentication ──▶ CALLER (access_keys.py) ──▶ handler ──▶ Guarded: what the caller may
              └─ nobody ──▶ UNAUTHENTICATED, whatever was called; apache.rocketmq.v2 says it itself, in its answers
"""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from popmq_server.access.access_keys import CALLER, Keys
from popmq_server.api.native.status import refuse
from popmq_server.engine.metrics import Metrics
from popmq_server.errors import Refused


class Authentication(grpc.aio.ServerInterceptor):  # type: ignore[misc, unused-ignore]
    """`answers_itself`: the beginning of the methods whose face refuses by itself, by `access.caller`."""

    def __init__(self, keys: Keys, metrics: Metrics, answers_itself: str) -> None:
        self._keys = keys
        self._metrics = metrics
        self._answers_itself = answers_itself
        # A stream of both sides fits every call: it reads nothing, and ends before it answers.
        self._refusing: Any = grpc.stream_stream_rpc_method_handler(_refuse)

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """The handler, in a context that knows the caller: grpcio runs it in the same task."""
        authorization = date_time = ""
        for name, value in details.invocation_metadata:
            if name == "authorization":
                authorization = value
            elif name == "x-mq-date-time":
                date_time = value
        try:
            CALLER.set(self._keys.caller(authorization, date_time))
        except Refused as refused:
            CALLER.set(refused)
            if not details.method.startswith(self._answers_itself):
                self._metrics.refusals.labels(refused.code).inc()
                return self._refusing
        return await continuation(details)


async def _refuse(requests: Any, context: Any) -> None:
    refused = CALLER.get()
    assert isinstance(refused, Refused)
    await refuse(context, refused)
