"""Health and reflection: the stock services of grpcio, with the limits and the end of the caller's access key."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any, TypeAlias, cast

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from popmq_server.errors import Refused, invalid
from popmq_server.monitoring.metrics import Metrics
from popmq_server.protocols.access.admission import admit
from popmq_server.protocols.access.open_streams import OpenStreams
from popmq_server.protocols.refusals import refuse
from popmq_server.protocols.transport import ServedMethod

#: What the stock services get and answer: messages of their own, and the context.
Stock: TypeAlias = Any
HEALTH = health.SERVICE_NAME
_ENCODE = "encode the request with stubs of the service"


class HealthService(health.aio.HealthServicer):
    """Answers any key."""

    def __init__(self, streams: OpenStreams, metrics: Metrics) -> None:
        super().__init__()
        self._streams = streams
        self._metrics = metrics

    def methods(self) -> dict[str, ServedMethod]:
        """The calls of HEALTH."""
        return {"Check": ServedMethod(self._check), "Watch": ServedMethod(self._watch, streams_out=True)}

    async def _check(self, raw: bytes, context: Stock) -> Stock:
        async with _refusing(context, self._metrics):
            admit(context, len(raw))
            request = health_pb2.HealthCheckRequest.FromString(raw)
            return (await self.Check(request, context)).SerializeToString()

    async def _watch(self, raw: bytes, context: Stock) -> None:
        async with _refusing(context, self._metrics), self._streams.admitted(context, len(raw)):
            answers: Stock = _Encoding(context)
            await self.Watch(health_pb2.HealthCheckRequest.FromString(raw), answers)


class _Encoding:
    """A context for handlers that write messages rather than bytes."""

    def __init__(self, context: Stock) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Stock:
        return getattr(self._context, name)

    async def write(self, message: Stock) -> None:
        await self._context.write(message.SerializeToString())


#: The service of newer clients. Its messages are those of v1alpha, which grpcio has.
REFLECTION_V1 = "grpc.reflection.v1.ServerReflection"
REFLECTIONS = (reflection.SERVICE_NAME, REFLECTION_V1)


class Reflection(reflection.aio.ReflectionServicer):
    """Answers any key."""

    def __init__(self, streams: OpenStreams, metrics: Metrics, names: list[str], pool: DescriptorPool) -> None:
        super().__init__(names, pool=pool)
        self._streams = streams
        self._metrics = metrics
        self._described = pool

    def _file_containing_symbol(self, request: Stock, fully_qualified_name: str) -> Stock:
        """Finds methods, fields and values too: grpcio finds only what is defined in a package or a message."""
        parent, _, member = fully_qualified_name.rpartition(".")
        known, inherited = _members(self._described, parent), cast(Stock, super())
        return inherited._file_containing_symbol(request, parent if member in known else fully_qualified_name)

    def methods(self) -> dict[str, ServedMethod]:
        """The calls of each of REFLECTIONS."""
        return {"ServerReflectionInfo": ServedMethod(self._answers, streams_in=True, streams_out=True)}

    async def _answers(self, requests: AsyncIterator[bytes], context: Stock) -> None:
        """Writes the answers itself, so that a stream ends with its key while its client takes none."""
        async with _refusing(context, self._metrics), self._streams.admitted(context) as stream:
            answers: Stock = self.ServerReflectionInfo(_decoded(stream.messages(requests)), context)
            async with contextlib.aclosing(answers):
                async for answer in answers:
                    await stream.write(answer.SerializeToString())


async def _decoded(requests: AsyncIterator[bytes]) -> AsyncIterator[Stock]:
    async for raw in requests:
        yield reflection_pb2.ServerReflectionRequest.FromString(raw)


def _members(pool: DescriptorPool, name: str) -> frozenset[str]:
    """The names of what a service, a message or an enum consists of; nothing for another name."""
    for find, lists in (
        (pool.FindServiceByName, ("methods_by_name",)),
        (pool.FindMessageTypeByName, ("fields_by_name", "oneofs_by_name", "enum_values_by_name")),
        (pool.FindEnumTypeByName, ("values_by_name",)),
    ):
        with contextlib.suppress(KeyError):
            found = find(name)
            return frozenset(one for names in lists for one in getattr(found, names))
    return frozenset()


def reflection_v1() -> bytes:
    """The file of REFLECTION_V1: that of v1alpha in another package."""
    old = reflection_pb2.DESCRIPTOR.package
    file = FileDescriptorProto.FromString(reflection_pb2.DESCRIPTOR.serialized_pb)
    file.package = REFLECTION_V1.rpartition(".")[0]
    file.name = f"{file.package.replace('.', '/')}/reflection.proto"
    named: list[tuple[Stock, str]] = [
        (field, "type_name") for message in file.message_type for field in message.field if field.type_name
    ]
    named += [(method, name) for method in file.service[0].method for name in ("input_type", "output_type")]
    for part, name in named:
        setattr(part, name, getattr(part, name).replace(f".{old}.", f".{file.package}."))
    return file.SerializeToString()


@contextlib.asynccontextmanager
async def _refusing(context: Stock, metrics: Metrics) -> AsyncIterator[None]:
    """Puts a refusal of the block on the wire, also of bytes that are no request."""
    try:
        yield
    except (Refused, DecodeError) as error:
        refused = error if isinstance(error, Refused) else invalid(str(error), action=_ENCODE)
        metrics.refusals.labels(refused.code).inc()
        await refuse(context, refused)
