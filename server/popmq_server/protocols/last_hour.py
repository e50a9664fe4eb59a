"""popmq.v1.Admin: the numbers of the last hour, which the broker samples for any engine (monitoring/sampling.py)."""

from google.protobuf.message import Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import Clock, pause
from popmq_server.contract.commands import queries
from popmq_server.contract.engine import BasicEngine
from popmq_server.contract.rights import Need
from popmq_server.monitoring.history import (
    STEP_MS,
    Pair,
    Point,
    Sums,
    known,
)
from popmq_server.monitoring.metrics import Metrics
from popmq_server.protocols import validation
from popmq_server.protocols.access.access_keys import CALLER, Key
from popmq_server.protocols.native import requests
from popmq_server.values.message import DEAD_LETTER_PREFIX, RETRY_PREFIX


class HistoryService:
    """`engine`: answers with the rows that the caller may see, as for GetStats."""

    def __init__(self, engine: BasicEngine, clock: Clock, metrics: Metrics) -> None:
        self._engine = engine
        self._clock = clock
        self._metrics = metrics

    async def GetHistory(self, raw: bytes) -> Message:
        """Sums over the topics and groups that the request names, as far as the caller may see them."""
        request, now_ms = requests.read(pb.GetHistoryRequest, raw), self._clock.now_ms()
        topic = validation.browsed_name(request.topic) if request.topic else ""
        group = validation.group_name(request.group) if request.group else ""
        if not topic and not group and self._sees_everything():
            return _answer(self._metrics.history.whole(now_ms), now_ms, left_out=False)
        history = self._metrics.history
        topics, pairs = await self._names(topic, group)
        sums = Sums(history, topics, pairs, now_ms)
        while sums.take():
            await pause(0)
        return _answer(sums.points(), now_ms, history.left_out(topics, pairs))

    def _sees_everything(self) -> bool:
        """Whether the sums over everything are the caller's, or only those over a part of it. Raises Refused."""
        self._engine.info()  # any key suffices, but one that was removed
        caller = CALLER.get()
        return not isinstance(caller, Key) or caller.may(Need("admin"))

    async def _names(self, topic: str, group: str) -> tuple[list[str], list[Pair]]:
        """(topics, groups in topics) that were asked for; dead-letter and retry topics have no numbers of their own."""
        rows = await self._engine.ask(queries.Groups(topic=topic, group=group))
        if group and not topic:
            names = [row.topic for row in rows]
        else:
            names = [row.topic.name for row in await self._engine.ask(queries.Topics(name=topic))]
        own = [name for name in names if not name.startswith((DEAD_LETTER_PREFIX, RETRY_PREFIX))]
        return own, [(row.group, row.topic) for row in rows]


def _answer(points: list[Point], now_ms: int, left_out: bool) -> pb.GetHistoryResponse:
    return pb.GetHistoryResponse(points=map(_point, points), step_ms=STEP_MS, left_out=left_out, now_ms=now_ms)


def _point(point: Point) -> pb.HistoryPoint:
    of_topic, of_pair, of_broker = point.topic, point.pair, point.broker
    broker = of_broker and pb.BrokerPoint(
        leases_late_ms=known(of_broker.leases_late_s * 1000),
        delayed_late_ms=known(of_broker.delayed_late_s * 1000),
        used_bytes=round(of_broker.used_bytes),
    )
    return pb.HistoryPoint(
        time_ms=point.time_ms,
        sent_per_s=of_topic.sent_per_s,
        sent_bytes_per_s=of_topic.sent_bytes_per_s,
        bytes=_whole(of_topic.bytes),
        popped_per_s=of_pair.popped_per_s,
        acked_per_s=of_pair.acked_per_s,
        backlog=round(of_pair.backlog),
        in_flight=_whole(of_pair.in_flight),
        retries=round(of_pair.retries),
        dead=round(of_pair.dead),
        oldest_age_ms=_whole(of_pair.oldest_s * 1000),
        broker=broker,
    )


def _whole(value: float) -> int | None:
    return None if (number := known(value)) is None else round(number)
