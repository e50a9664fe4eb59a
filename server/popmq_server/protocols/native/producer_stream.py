"""popmq.v1.Broker.Session: the stream on which the broker asks producers for the outcome of half messages.

    client                              broker
    hello (client id, topics)  ───────▶ known topics that take half messages? otherwise refuses the stream
                               ◀─────── welcome
                               ◀─────── check              a check counts once it was written
    checked (COMMIT, ROLLBACK) ───────▶ EndTransaction     answers that queued up share one command
    checked (unspecified)      ───────▶ nothing: checked again later

A stream is unregistered as soon as it ends: when the client closes it or disappears, and when the broker stops or
receives an invalid request on it.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator

from google.protobuf.message import Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract.commands import Check, End, EndTransaction
from popmq_server.contract.engine import CheckStreams, ProducerStream
from popmq_server.errors import Refused, invalid
from popmq_server.monitoring.metrics import Metrics
from popmq_server.protocols import validation
from popmq_server.protocols.native.pending import decided
from popmq_server.protocols.native.requests import read
from popmq_server.values.message import check_range

log = logging.getLogger("popmq.protocols")

#: The client's answers, then how its side ended: None when it closed the stream in order.
Answers = asyncio.Queue[End | Refused | None]


class SessionService:
    """One call of `Session` per stream; it lasts as long as the stream."""

    def __init__(self, engine: CheckStreams, metrics: Metrics) -> None:
        self._engine = engine
        self._metrics = metrics

    async def Session(self, raws: AsyncIterator[bytes]) -> AsyncGenerator[Message, None]:
        """Hello, welcome, then checks as they come. Two tasks read and process the client's answers meanwhile."""
        client, topics = await _hello(raws)
        stream = await self._engine.join(client, topics)
        answers: Answers = asyncio.Queue(validation.ENTRIES_MAX)
        tasks = [
            asyncio.ensure_future(_read_answers(raws, answers)),
            asyncio.ensure_future(self._end_answered(answers, stream)),
        ]
        try:
            yield pb.SessionResponse(welcome=pb.SessionWelcome())
            async for check in stream:
                yield pb.SessionResponse(check=_check(check))
        finally:
            stream.close()
            for task in tasks:
                task.cancel()

    async def _end_answered(self, answers: Answers, stream: ProducerStream) -> None:
        """Ends the transactions that the client decided, and the stream when there are no more answers."""
        try:
            while True:
                taken = [await answers.get()]
                while not answers.empty() and len(taken) < validation.ENTRIES_MAX:
                    taken.append(answers.get_nowait())
                if ends := tuple(entry for entry in taken if isinstance(entry, End)):
                    await self._end(ends, stream)
                if not isinstance(last := taken[-1], End):
                    stream.end(last)
                    return
        except Exception:
            log.exception("a Session failed on an answer of its client")
            stream.end(Refused("INTERNAL", "the broker failed on this Session", action="report it with its log"))

    async def _end(self, ends: tuple[End, ...], stream: ProducerStream) -> None:
        """Ends transactions; a failure is only counted: the half message is still there, and is checked again.

        Usually the transaction has ended meanwhile, with the other decision or long ago. Only a malformed id ends the
        stream.
        """
        try:
            results = await self._engine.execute(EndTransaction(ends))
        except Refused as refused:
            results = [refused] * len(ends)
        for result in results:
            if isinstance(result, Refused):
                self._metrics.refusals.labels(result.code).inc()
                if result.code == "INVALID_FIELD":
                    result.field = f"checked.{result.field}"
                    stream.end(result)


async def _hello(raws: AsyncIterator[bytes]) -> tuple[str, tuple[str, ...]]:
    """(client id, topics) of the first message. Raises Refused when it is not a hello."""
    async for raw in raws:
        request = read(pb.SessionRequest, raw)
        if not request.HasField("hello"):
            break
        hello = request.hello
        client = validation.client_id(hello.client_id, "hello.client_id", required=True)
        names = hello.transaction_topics
        check_range(len(names), "hello.transaction_topics", 1, validation.ENTRIES_MAX)
        return client, tuple(
            validation.topic_name(name, f"hello.transaction_topics[{index}]") for index, name in enumerate(names)
        )
    raise invalid("a Session begins with hello", field="hello", action="say hello first, with client id and topics")


async def _read_answers(raws: AsyncIterator[bytes], answers: Answers) -> None:
    """Queues the client's answers, then how its side ended. A full queue applies backpressure to the client."""
    try:
        async for raw in raws:
            request = read(pb.SessionRequest, raw)
            if not request.HasField("checked"):
                raise invalid("after hello a Session takes answers to checks", field="checked", action="set checked")
            if request.checked.resolution != pb.RESOLUTION_UNSPECIFIED:
                await answers.put(decided(request.checked, "checked"))
    except Refused as refused:
        await answers.put(refused)
    else:
        await answers.put(None)


def _check(check: Check) -> pb.TransactionCheck:
    return pb.TransactionCheck(
        transaction_id=check.transaction,
        topic=check.topic,
        message=pb.Message.FromString(check.data),
        check=check.number,
    )
