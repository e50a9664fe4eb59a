"""externalscaler.ExternalScaler: answers KEDA from the engine's numbers, and watches idle groups for it.

    work      messages that can be delivered now: new ones and retries; and leased ones, unless inFlight is "false"
    active    work > activation

An idle group is watched by a call that waits, as WaitAvailable does: it costs nothing until a message arrives. A group
with work is looked at every LOOK_S, since nothing tells when its last message is done. The group is bound to the topic
by the first look, so that it starts where its `start` says although no consumer has run yet.
"""

import asyncio
import math
from collections.abc import AsyncGenerator

from google.protobuf.message import Message

from popmq_proto.keda import externalscaler_pb2 as pb
from popmq_server.clock import Clock, pause
from popmq_server.contract.commands import Available, queries
from popmq_server.contract.engine import Polling
from popmq_server.errors import Refused, invalid
from popmq_server.protocols.keda import trigger
from popmq_server.protocols.keda.trigger import Trigger
from popmq_server.protocols.native import requests

#: Between two looks at a group with work, in seconds.
LOOK_S = 5.0
#: How long one wait for a message lasts; the next one follows.
WAIT_MS = 60_000
#: KEDA makes it unique among the triggers of an object.
METRIC = "popmq-messages"


class ScalerService:
    """Each method raises Refused."""

    def __init__(self, engine: Polling, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def IsActive(self, raw: bytes) -> Message:
        """Whether there is work now."""
        asked = trigger.read(trigger.metadata_of("IsActive", raw))
        return pb.IsActiveResponse(result=await self._work(asked) > asked.activation)

    async def StreamIsActive(self, raw: bytes) -> AsyncGenerator[Message, None]:
        """The same now, and at each change, until KEDA leaves."""
        asked = trigger.read(trigger.metadata_of("StreamIsActive", raw))
        told: bool | None = None
        while True:
            work = await self._work(asked)
            active = work > asked.activation
            if active is not told:
                yield pb.IsActiveResponse(result=active)
                told = active
            if work:
                await pause(LOOK_S)
            else:
                await self._arrival(asked)

    async def GetMetricSpec(self, raw: bytes) -> Message:
        """The metric, and the messages for one replica."""
        asked = trigger.read(trigger.metadata_of("GetMetricSpec", raw))
        self._engine.info()  # any key suffices, but one that was removed
        spec = pb.MetricSpec(metricName=METRIC, targetSize=math.ceil(asked.target), targetSizeFloat=asked.target)
        return pb.GetMetricSpecResponse(metricSpecs=[spec])

    async def GetMetrics(self, raw: bytes) -> Message:
        """The messages."""
        asked = trigger.read(trigger.metadata_of("GetMetrics", raw))
        name = requests.read(pb.GetMetricsRequest, raw).metricName
        if name not in ("", METRIC):
            raise invalid(f"there is no metric {name[:40]!r}", field="metricName", action=f"ask for {METRIC}")
        work = await self._work(asked)
        value = pb.MetricValue(metricName=METRIC, metricValue=work, metricValueFloat=work)
        return pb.GetMetricsResponse(metricValues=[value])

    async def StreamMetricSpec(self, _: bytes) -> AsyncGenerator[Message, None]:
        """Raises Refused UNSUPPORTED, after which KEDA does without."""
        raise Refused("UNSUPPORTED", "targets change only with their trigger", action="ask GetMetricSpec, as KEDA does")
        yield

    async def _work(self, asked: Trigger) -> int:
        """The messages of all topics of a trigger."""
        return sum([await self._work_in(topic, asked) for topic in asked.topics])

    async def _work_in(self, topic: str, asked: Trigger) -> int:
        ready = (await self._engine.wait_available(Available(topic, asked.group), 0, 0)).ready
        (row,) = await self._engine.ask(queries.Groups(topic, asked.group))
        # The first counts message groups whose turn it is, the second retries that a gateway's first does not have.
        deliverable = max(ready, row.ready + row.retry)
        if not asked.in_flight:
            return deliverable
        if row.in_flight is None:
            raise Refused(
                "UNSUPPORTED",
                f"the engine {self._engine.info().engine!r} does not know how many messages are leased",
                field="scalerMetadata.inFlight",
                action='set inFlight to "false" in the trigger, and a cooldownPeriod longer than a handler runs',
            )
        return deliverable + row.in_flight

    async def _arrival(self, asked: Trigger) -> None:
        """Returns when a topic has a message for the group, at the latest after WAIT_MS."""
        until_ms = self._clock.now_ms() + WAIT_MS
        waits = [
            asyncio.ensure_future(self._engine.wait_available(Available(topic, asked.group), 1, WAIT_MS))
            for topic in asked.topics
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        if not any(each.result().ready for each in done) and self._clock.now_ms() < until_ms:
            await pause(LOOK_S)  # the engine answers waits early when it stops
