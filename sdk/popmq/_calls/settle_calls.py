"""Requests that end deliveries and send messages in one commit, as pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from popmq._calls import send_calls
from popmq._calls.message_rows import Numbering, message_rows
from popmq._calls.send_calls import SEND_BYTES_MAX
from popmq._given.fields import ENTRIES_MAX
from popmq._transport.call import Call
from popmq.errors import InvalidField
from popmq.message import Send, SendReceipt
from popmq_proto.v1 import popmq_pb2 as pb

if TYPE_CHECKING:
    from popmq.message import Body, Message


class Forwarded(NamedTuple):
    """The messages of one Send as the contract's, and their bytes."""

    topic: str
    rows: list[pb.Message]
    size: int


def listed_sends(sends: Send | Iterable[Send]) -> list[Send]:
    """One or several as a list. Raises TypeError for anything else."""
    if isinstance(sends, Send):
        return [sends]
    found = list(sends)
    for index, each in enumerate(found):
        if not isinstance(each, Send):
            raise TypeError(f"sends[{index}] is of type {type(each).__name__}: give popmq.Send(topic, message)")
    return found


def forwarded(send: Send, message_id: Callable[[], str]) -> Forwarded:
    """Raises InvalidField for a half message, and what `message_rows` raises."""
    messages: list[Message | Body] = [*send.messages]
    rows = message_rows(messages, message_id)
    if half := [index for index, row in enumerate(rows) if row.transaction]:
        raise InvalidField(
            "a message that is sent with an ack cannot be a half message: both are one commit already",
            code="INVALID_FIELD",
            field=f"messages[{half[0]}].transaction",
            action="leave out transaction=True",
        )
    return Forwarded(send.topic, rows, sum(row.ByteSize() for row in rows))


def settle(
    group: str,
    handles: Sequence[str],
    changes: Sequence[pb.InvisibleTimeChange],
    sends: Sequence[Forwarded],
    numbering: Numbering,
) -> Call[list[SendReceipt]]:
    """Acks `handles`, makes `changes` and stores all messages, or does nothing; reads the receipts in that order.

    Every try has the same request number: one whose answer was lost is not done a second time.
    """
    request = pb.SettleRequest(group=group, handles=handles, changes=changes)
    request.producer_id, request.request_number = numbering.producer_id, numbering.request_number()
    places: dict[str, list[int]] = {}
    count = 0
    for topic, rows, _ in sends:
        places.setdefault(topic, []).extend(range(count, count + len(rows)))
        count += len(rows)
    messages = [row for _, rows, _ in sends for row in rows]
    for topic, numbers in places.items():
        request.sends.add(topic=topic, messages=[messages[number] for number in numbers])

    def read(reply: pb.SettleResponse, _retried: bool) -> list[SendReceipt]:
        receipts: list[Any] = [None] * count
        for numbers, answered in zip(places.values(), reply.sends, strict=True):
            for number, result in zip(numbers, answered.results, strict=True):
                receipts[number] = send_calls.read_receipt(result)
        return receipts

    return Call("Broker.Settle", request, read, "settle")


def fitting(waiting: Sequence[Sequence[Forwarded]]) -> int:
    """How many of the deliveries that wait fit into one request with all that they forward; at least one."""
    messages = size = 0
    for number, sends in enumerate(waiting):
        messages += sum(len(each.rows) for each in sends)
        size += sum(each.size for each in sends)
        if number and (number == ENTRIES_MAX or messages > ENTRIES_MAX or size > SEND_BYTES_MAX):
            return number
    return len(waiting)
