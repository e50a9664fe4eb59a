"""Health and reflection: the stock services of grpcio, with the limits and the end of the caller's access key."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

from popmq_server.access.admission import admit
from popmq_server.access.open_streams import OpenStreams
from popmq_server.api.native.status import refuse
from popmq_server.errors import Refused
from popmq_server.monitoring.metrics import Metrics


class Health(health.aio.HealthServicer):
    """Answers any key."""

    def __init__(self, streams: OpenStreams, metrics: Metrics) -> None:
        super().__init__()
        self._streams = streams
        self._metrics = metrics

    async def Check(self, request: Any, context: Any) -> Any:
        async with _refusing(context, self._metrics):
            admit(context, request.ByteSize())
            return await super().Check(request, context)

    async def Watch(self, request: Any, context: Any) -> None:
        async with _refusing(context, self._metrics), self._streams.admitted(context, request.ByteSize()):
            await super().Watch(request, context)


class Reflection(reflection.aio.ReflectionServicer):
    """Answers any key."""

    def __init__(self, streams: OpenStreams, metrics: Metrics, names: list[str], pool: Any) -> None:
        super().__init__(names, pool=pool)
        self._streams = streams
        self._metrics = metrics

    async def ServerReflectionInfo(self, request_iterator: Any, unused_context: Any) -> Any:
        """Writes the answers itself, so that a stream ends with its key while its client takes none."""
        context = unused_context
        async with _refusing(context, self._metrics), self._streams.admitted(context) as stream:
            answers: Any = super().ServerReflectionInfo(stream.messages(request_iterator), context)
            async with contextlib.aclosing(answers):
                async for answer in answers:
                    await stream.write(answer)


@contextlib.asynccontextmanager
async def _refusing(context: Any, metrics: Metrics) -> AsyncIterator[None]:
    """Puts a refusal of the block on the wire."""
    try:
        yield
    except Refused as refused:
        metrics.refusals.labels(refused.code).inc()
        await refuse(context, refused)
