"""popmq.v1: delayed messages and transactions. docs/delay.md and docs/transactions.md describe them.

    Recall            delay.recall                 ListDelayed         delay.listed
    EndTransaction    end_transaction.end          ListTransactions    transaction.listed

The stream that asks producers for decisions is in sessions.py.
"""

from google.protobuf.message import Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.api.native import pages, requests, responses
from popmq_server.api.native.requests import read
from popmq_server.api.native.status import error_info
from popmq_server.commands import End, Ended, EndTransaction, Recall, queries
from popmq_server.commands.numbers import DelayedMessage, HalfMessage, Rows
from popmq_server.engine.engine import Commands
from popmq_server.errors import Refused, invalid
from popmq_server.model.message import check_range
from popmq_server.monitoring.metrics import Metrics

#: Default number of rows in a list.
ROWS_DEFAULT = 100


class TimingService:
    """Recalls, ends and lists messages that are not visible yet."""

    def __init__(self, engine: Commands, metrics: Metrics) -> None:
        self._engine = engine
        self._metrics = metrics

    async def Recall(self, raw: bytes) -> Message:
        """Recalls a delayed message; OK means that it will never be delivered."""
        request = read(pb.RecallRequest, raw)
        topic = requests.topic_name(request.topic)
        message_id = await self._engine.execute(Recall(topic, request.recall_handle))
        self._served("Recall", topic, 1)
        return pb.RecallResponse(message_id=message_id)

    async def EndTransaction(self, raw: bytes) -> Message:
        """Commits or rolls back, each entry on its own."""
        request = read(pb.EndTransactionRequest, raw)
        check_range(len(request.ends), "ends", 1, requests.ENTRIES_MAX)
        ends = [_end(entry, f"ends[{place}]") for place, entry in enumerate(request.ends)]
        answer = await self._engine.execute(EndTransaction(tuple(ends)))
        self._served("EndTransaction", "", sum(isinstance(entry, Ended) for entry in answer))
        return pb.EndTransactionResponse(results=[self._ended(entry, place) for place, entry in enumerate(answer)])

    def _served(self, method: str, topic: str, messages: int) -> None:
        """Counts a call by the names in it, like native.py."""
        self._metrics.requests.labels(method, "", topic).inc()
        if messages:
            self._metrics.messages.labels(method, "", topic).inc(messages)

    def _ended(self, entry: Ended | Refused, number: int) -> pb.SendResult:
        """Converts one result; counts a refused entry, as other calls do."""
        if not isinstance(entry, Refused):
            return responses.place(entry.place, entry.message_id)
        self._metrics.refusals.labels(entry.code).inc()
        if not entry.field.startswith("ends["):
            entry.field = f"ends[{number}].{entry.field}"
        return pb.SendResult(error=error_info(entry))

    async def ListDelayed(self, raw: bytes) -> Message:
        """Delayed messages, soonest first."""
        request = read(pb.ListDelayedRequest, raw)
        count = check_range(request.max_messages, "max_messages", 1, requests.ENTRIES_MAX, ROWS_DEFAULT)
        until_ms = check_range(request.until_ms, "until_ms", 0, requests.INT64_MAX)
        topic = requests.topic_name(request.topic) if request.topic else ""

        async def piece(left: int, after: bytes) -> tuple[Rows[DelayedMessage], int]:
            return await self._engine.ask(queries.Delayed(topic, until_ms, left, after))

        rows, total = await pages.filled(count, request.page_token, piece)
        messages = [pb.DelayedMessage(**row._asdict()) for row in rows]
        return pb.ListDelayedResponse(messages=messages, total=total, next_page_token=rows.after)

    async def ListTransactions(self, raw: bytes) -> Message:
        """Half messages whose transaction is not ended, oldest first."""
        request = read(pb.ListTransactionsRequest, raw)
        count = check_range(request.max_messages, "max_messages", 1, requests.ENTRIES_MAX, ROWS_DEFAULT)
        topic = requests.topic_name(request.topic) if request.topic else ""

        async def piece(left: int, after: bytes) -> tuple[Rows[HalfMessage], int]:
            return await self._engine.ask(queries.Transactions(topic, left, after))

        rows, total = await pages.filled(count, request.page_token, piece)
        messages = [pb.HalfMessage(**row._asdict()) for row in rows]
        return pb.ListTransactionsResponse(messages=messages, total=total, next_page_token=rows.after)


def _end(entry: pb.TransactionEnd, field: str) -> End | Refused:
    """One entry, or its refusal."""
    try:
        return decided(entry, field)
    except Refused as refused:
        return refused


def decided(entry: pb.TransactionEnd | pb.TransactionChecked, field: str) -> End:
    """A decision about a transaction. Raises Refused for one that is none; the engine reads the id."""
    if entry.resolution not in (pb.COMMIT, pb.ROLLBACK):
        raise invalid(
            f"the resolution {entry.resolution} is neither COMMIT nor ROLLBACK",
            field=f"{field}.resolution",
            action="send COMMIT or ROLLBACK, or wait for the next check",
        )
    return End(entry.transaction_id, entry.resolution == pb.COMMIT)
