"""popmq.v1: delayed messages, transactions, schedules: docs/delay.md, docs/transactions.md, docs/schedules.md.

    Recall            delay.recall                 ListDelayed         delay.listed
    Reschedule        delay.reschedule
    EndTransaction    end_transaction.end          ListTransactions    transaction.listed
    …Schedule         schedules.py                 ListSchedules       schedules.listed

The stream that asks producers for decisions is in producer_stream.py.
"""

from typing import Any

from google.protobuf.message import Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract.commands import (
    CreateSchedule,
    DeleteSchedule,
    End,
    Ended,
    EndTransaction,
    PauseSchedule,
    Recall,
    Reschedule,
    RunSchedule,
    queries,
)
from popmq_server.contract.commands.numbers import DelayedMessage, HalfMessage
from popmq_server.contract.engine import Commands
from popmq_server.errors import Refused, invalid, not_one_of
from popmq_server.monitoring.metrics import Metrics
from popmq_server.protocols import validation
from popmq_server.protocols.entries import DELAY_MS_MAX, new_message
from popmq_server.protocols.native import pages, requests, responses
from popmq_server.protocols.native.requests import read
from popmq_server.protocols.refusals import entry_info
from popmq_server.values.message import (
    KEY_BYTES_MAX,
    MESSAGE_ID_BYTES_MAX,
    PROPERTIES_MAX,
    TIME_MS_MAX,
    check_name,
    check_range,
    check_text,
)
from popmq_server.values.records import Schedule

#: Default number of rows in a list.
ROWS_DEFAULT = 100
#: The name followed by the time is a message id.
NAME_MAX = 100
#: The broker stores the message again at each occurrence.
MESSAGE_BYTES_MAX = 256 << 10
CRON_BYTES_MAX, ZONE_BYTES_MAX = 256, 64
UPCOMING_MAX = 100
#: Properties that the broker adds to each message.
_ADDED = 2
_NOT_SCHEDULED = ("message_id", "deliver_at_ms", "delay_ms", "transaction", "check_after_ms", "dead_letter")


class TimingService:
    """Recalls, ends and lists messages that are not visible yet."""

    def __init__(self, engine: Commands, metrics: Metrics) -> None:
        self._engine = engine
        self._metrics = metrics

    async def Recall(self, raw: bytes) -> Message:
        """Recalls a delayed message; OK means that it will never be delivered."""
        request = read(pb.RecallRequest, raw)
        topic = validation.topic_name(request.topic)
        message_id = await self._engine.execute(Recall(topic, request.recall_handle))
        self._served("Recall", topic, 1)
        return pb.RecallResponse(message_id=message_id)

    async def Reschedule(self, raw: bytes) -> Message:
        """Moves a delayed message to another time."""
        request = read(pb.RescheduleRequest, raw)
        topic = validation.topic_name(request.topic)
        due_ms = check_range(request.deliver_at_ms, "deliver_at_ms", 0, TIME_MS_MAX)
        delay_ms = check_range(request.delay_ms, "delay_ms", 0, DELAY_MS_MAX)
        if bool(due_ms) == bool(delay_ms):
            raise invalid("not one of deliver_at_ms and delay_ms is set", field="delay_ms", action="set one of them")
        moved = await self._engine.execute(Reschedule(topic, request.recall_handle, due_ms, delay_ms))
        self._served("Reschedule", topic, 1)
        return pb.RescheduleResponse(message_id=moved.message_id, recall_handle=moved.handle, due_ms=moved.due_ms)

    async def EndTransaction(self, raw: bytes) -> Message:
        """Commits or rolls back, each entry on its own."""
        request = read(pb.EndTransactionRequest, raw)
        check_range(len(request.ends), "ends", 1, validation.ENTRIES_MAX)
        ends = [_end(entry, f"ends[{index}]") for index, entry in enumerate(request.ends)]
        answer = await self._engine.execute(EndTransaction(tuple(ends)))
        self._served("EndTransaction", "", sum(isinstance(entry, Ended) for entry in answer))
        return pb.EndTransactionResponse(results=[self._ended(entry, index) for index, entry in enumerate(answer)])

    def _served(self, method: str, topic: str, messages: int) -> None:
        """Counts a call by the names in it, like native.py."""
        self._metrics.requests.labels(method, "", topic).inc()
        if messages:
            self._metrics.messages.labels(method, "", topic).inc(messages)

    def _ended(self, entry: Ended | Refused, number: int) -> pb.SendResult:
        """Converts one result; counts a refused entry, as other calls do."""
        if not isinstance(entry, Refused):
            return responses.place(entry.place, entry.message_id)
        return pb.SendResult(error=entry_info(entry, "ends", number, self._metrics))

    async def ListDelayed(self, raw: bytes) -> Message:
        """Delayed messages, soonest first."""
        request = read(pb.ListDelayedRequest, raw)
        count = check_range(request.max_messages, "max_messages", 1, validation.ENTRIES_MAX, ROWS_DEFAULT)
        until_ms = check_range(request.until_ms, "until_ms", 0, requests.INT64_MAX)
        topic = validation.topic_name(request.topic) if request.topic else ""
        bytes_max = requests.POP_BYTES if request.whole else 0
        query = queries.Delayed(
            topic,
            until_ms,
            count,
            pages.begin(request),
            bytes_max=bytes_max,
            message_id=check_text(request.message_id, "message_id", MESSAGE_ID_BYTES_MAX),
            key=check_text(request.key, "key", KEY_BYTES_MAX),
        )
        rows, total = await self._engine.ask(query)
        messages = [_delayed(row) for row in rows]
        return pb.ListDelayedResponse(messages=messages, total=total, next_page_token=pages.token(request, rows.after))

    async def ListTransactions(self, raw: bytes) -> Message:
        """Half messages whose transaction is not ended, topic by topic, in each oldest first."""
        request = read(pb.ListTransactionsRequest, raw)
        count = check_range(request.max_messages, "max_messages", 1, validation.ENTRIES_MAX, ROWS_DEFAULT)
        topic = validation.topic_name(request.topic) if request.topic else ""
        rows, total = await self._engine.ask(queries.Transactions(topic, count, pages.begin(request)))
        messages = [pb.HalfMessage(**_previewed(row)) for row in rows]
        more = pages.token(request, rows.after)
        return pb.ListTransactionsResponse(messages=messages, total=total, next_page_token=more)


def _delayed(row: DelayedMessage) -> pb.DelayedMessage:
    fields = _previewed(row)
    data = fields.pop("data")
    return pb.DelayedMessage(**fields, message=pb.Message.FromString(data) if data else None)


def _previewed(row: DelayedMessage | HalfMessage) -> dict[str, Any]:  # arguments of a message, of several types
    """The fields of a row, with its preview as the contract's message."""
    shown = pb.MessagePreview(**row.preview._asdict()) if row.preview else None
    return row._asdict() | {"preview": shown}


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


class ScheduleService:
    """Makes, shows, pauses and deletes schedules, and runs one at once."""

    def __init__(self, engine: Commands) -> None:
        self._engine = engine

    async def CreateSchedule(self, raw: bytes) -> Message:
        """Creates a schedule, or returns the existing one with equal settings."""
        asked = read(pb.CreateScheduleRequest, raw).schedule
        command = _create(asked)
        with requests.Paths(topic="schedule.topic", cron="schedule.cron", time_zone="schedule.time_zone"):
            made, existed = await self._engine.execute(command)
        shown = _shown(made, b"")
        shown.message.CopyFrom(asked.message)
        return pb.CreateScheduleResponse(schedule=shown, existed=existed)

    async def GetSchedule(self, raw: bytes) -> Message:
        """One schedule and its next occurrences."""
        request = read(pb.GetScheduleRequest, raw)
        count = check_range(request.upcoming, "upcoming", 0, UPCOMING_MAX)
        row = (await self._engine.ask(queries.Schedules(name=_name(request.name), upcoming=count)))[0]
        return pb.GetScheduleResponse(schedule=_shown(row.schedule, row.data), upcoming_ms=row.upcoming)

    async def ListSchedules(self, raw: bytes) -> Message:
        """Schedules by name, all or a page."""
        request = read(pb.ListSchedulesRequest, raw)
        rows = await self._engine.ask(queries.Schedules(**pages.asked(request)))
        shown = [_shown(row.schedule, row.data) for row in rows]
        return pb.ListSchedulesResponse(schedules=shown, next_page_token=pages.token(request, rows.after))

    async def DeleteSchedule(self, raw: bytes) -> Message:
        """Removes a schedule; what it has sent stays."""
        await self._engine.execute(DeleteSchedule(_name(read(pb.DeleteScheduleRequest, raw).name)))
        return pb.DeleteScheduleResponse()

    async def PauseSchedule(self, raw: bytes) -> Message:
        """Occurrences are left out from now on."""
        return pb.PauseScheduleResponse(schedule=await self._paused(read(pb.PauseScheduleRequest, raw).name, True))

    async def ResumeSchedule(self, raw: bytes) -> Message:
        """Goes on with the first occurrence after now."""
        return pb.ResumeScheduleResponse(schedule=await self._paused(read(pb.ResumeScheduleRequest, raw).name, False))

    async def _paused(self, name: str, paused: bool) -> pb.Schedule:
        await self._engine.execute(PauseSchedule(_name(name), paused))
        row = (await self._engine.ask(queries.Schedules(name=name)))[0]
        return _shown(row.schedule, row.data)

    async def RunSchedule(self, raw: bytes) -> Message:
        """Sends the message now."""
        name = _name(read(pb.RunScheduleRequest, raw).name)
        return pb.RunScheduleResponse(message_id=await self._engine.execute(RunSchedule(name)))


def _name(name: str, field: str = "name") -> str:
    return check_name(name, field, NAME_MAX)


def _create(asked: pb.Schedule) -> CreateSchedule:
    """Validates a schedule; the engine reads its expression, its time zone and its topic."""
    if asked.missed not in pb.Missed.values():
        raise not_one_of("schedule.missed", asked.missed, pb.Missed.keys())
    message = pb.Message()
    message.CopyFrom(asked.message)
    for name in _NOT_SCHEDULED:
        if message.HasField(name) if name == "dead_letter" else getattr(message, name):
            raise invalid(f"a scheduled message has no {name}", field=f"schedule.message.{name}", action="leave it out")
    check_range(len(message.properties), "schedule.message.properties", 0, PROPERTIES_MAX - _ADDED)
    message.message_id = name = _name(asked.name, "schedule.name")
    data = message.SerializeToString(deterministic=True)
    if len(data) > MESSAGE_BYTES_MAX:
        raise invalid(
            f"the message has {len(data)} bytes, at most {MESSAGE_BYTES_MAX} are allowed", field="schedule.message"
        )
    try:
        checked = new_message(data, message)
    except Refused as refused:
        refused.field = f"schedule.message.{refused.field}"
        raise
    return CreateSchedule(
        name=name,
        cron=check_text(asked.cron, "schedule.cron", CRON_BYTES_MAX, required=True),
        zone=check_text(asked.time_zone, "schedule.time_zone", ZONE_BYTES_MAX) or "UTC",
        topic=validation.topic_name(asked.topic, "schedule.topic"),
        missed=pb.Missed.Name(asked.missed or pb.ONCE),
        message=checked,
    )


def _shown(schedule: Schedule, data: bytes) -> pb.Schedule:
    """A schedule in the form of the contract, with its message as it was given."""
    fields = schedule._asdict()
    for hidden in ("zone", "lite_topic", "looked_ms"):
        del fields[hidden]
    message = pb.Message.FromString(data) if data else None
    if message is not None:
        message.ClearField("message_id")
    return pb.Schedule(time_zone=schedule.zone, message=message, **fields)
