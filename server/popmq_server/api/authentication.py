"""Authentication: identifies the caller of each call and stream, on every port, before its handler is looked up.

call ──▶ Authentication ──▶ CALLER (access_keys.py) ──▶ handler ──▶ Guarded: checks the caller's permissions
              └─ no key ──▶ UNAUTHENTICATED, for any method; apache.rocketmq.v2 reports it in its own answers
"""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from popmq_server.access.access_keys import CALLER, Keys
from popmq_server.api.native.status import refuse
from popmq_server.errors import Refused
from popmq_server.monitoring.metrics import Metrics


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
