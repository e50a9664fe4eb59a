"""Sends, alone and in batches; recalls; ends of transactions, and the broker's questions about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from popmq_remoting.codes import RequestCode, ResponseCode, SysFlag
from popmq_remoting.errors import BadFormat
from popmq_remoting.messages import batch, properties, stored
from popmq_remoting.messages.stored import StoredMessage
from popmq_remoting.wire.command import Request, Response, request, whole_number

#: What a send's answer says about a message that is stored here: also not flushed, or not on a replica, in time.
STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)


@dataclass(frozen=True)
class SendTarget:
    """Where a send goes. `queue_id` below 0: the broker chooses."""

    topic: str
    group: str
    queue_id: int = -1
    broker: str | None = None


class SendOutcome(NamedTuple):
    """Where a message is. The offset ids of a batch are in its order, and its offsets follow each other."""

    code: int
    offset_ids: list[str]
    queue_id: int
    queue_offset: int
    transaction_id: str
    recall_handle: str


def send(
    target: SendTarget,
    body: bytes,
    own: Mapping[str, str],
    born_ms: int,
    sys_flag: int = 0,
    reconsume_times: int = 0,
) -> Request:
    """One message with these properties. Raises BadFormat for properties that do not fit."""
    if own.get("TRAN_MSG") == "true":
        sys_flag |= SysFlag.PREPARED
    return _send(RequestCode.SEND_MESSAGE_V2, target, body, properties.write(own), born_ms, sys_flag, reconsume_times)


def send_batch(target: SendTarget, entries: Sequence[batch.Entry], born_ms: int) -> Request:
    """Messages for one queue, 4 MiB at most; one code answers for all. Raises BadFormat."""
    return _send(RequestCode.SEND_BATCH_MESSAGE, target, batch.write(entries), "", born_ms, 0, 0)


def _send(
    code: int, target: SendTarget, body: bytes, text: str, born_ms: int, sys_flag: int, reconsume_times: int
) -> Request:
    """The header's names are single letters, which saves brokers time."""
    fields = {
        "a": target.group,
        "b": target.topic,
        "c": target.topic,  # the topic that a missing one would be made like: this one is missing then too
        "d": "4",
        "e": str(target.queue_id),
        "f": str(int(sys_flag)),
        "g": str(born_ms),
        "h": "0",
        "i": text,
        "j": str(reconsume_times),
        "k": "false",
        "m": "true" if code == RequestCode.SEND_BATCH_MESSAGE else "false",
    }
    if target.broker is not None:
        fields["n"] = target.broker
    return Request(code, fields, body)


def sent(answer: Response) -> SendOutcome:
    """Raises BrokerRefused for codes that do not mean stored, BadFormat."""
    answer.expect(*STORED)
    return SendOutcome(
        answer.code,
        answer.text("msgId").split(","),
        answer.number("queueId"),
        answer.number("queueOffset"),
        answer.fields.get("transactionId", ""),
        answer.fields.get("recallHandle", ""),
    )


def recall(topic: str, handle: str, group: str) -> Request:
    """Since 5.3.2, where the operator allows it. OK means that it was asked for, not that it won against the timer."""
    return request(RequestCode.RECALL_MESSAGE, topic=topic, recallHandle=handle, producerGroup=group)


class HalfPlace(NamedTuple):
    """Where the half message of a transaction is."""

    topic: str
    group: str
    message_id: str
    transaction_id: str
    half_queue_offset: int
    commit_log_offset: int


def end_transaction(half: HalfPlace, commit: bool, from_check: bool) -> Request:
    """Not idempotent: two commits deliver twice, also of a transaction that was rolled back."""
    return request(
        RequestCode.END_TRANSACTION,
        topic=half.topic,
        producerGroup=half.group,
        tranStateTableOffset=half.half_queue_offset,
        commitLogOffset=half.commit_log_offset,
        commitOrRollback=int(SysFlag.COMMIT if commit else SysFlag.ROLLBACK),
        fromTransactionCheck=from_check,
        msgId=half.message_id,
        transactionId=half.transaction_id,
    )


class CheckBack(NamedTuple):
    """A broker asks how a transaction ended (39): any client that named the group in a heartbeat may answer.

    `number`: of the check, from 1.
    """

    broker: str
    half: HalfPlace
    message: StoredMessage
    number: int


def check(asked: Request) -> CheckBack:
    """Raises BadFormat. The topic is the message's: the header names the topic of half messages."""
    messages = stored.read_all(asked.body)
    if len(messages) != 1:
        raise BadFormat(f"a check of a transaction with {len(messages)} messages")
    own = properties.read(messages[0].properties)
    fields = Response(0, "", asked.fields)
    number = own.get("TRANSACTION_CHECK_TIMES", "1")
    return CheckBack(
        fields.text("bname"),
        HalfPlace(
            messages[0].topic,
            own.get("PGROUP", ""),
            fields.fields.get("msgId", ""),
            fields.fields.get("transactionId", ""),
            fields.number("tranStateTableOffset"),
            fields.number("commitLogOffset"),
        ),
        messages[0],
        whole_number(number, "the number of the check"),
    )
