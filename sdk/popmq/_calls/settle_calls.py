"""Requests that end deliveries, send messages and give results in one commit, and those that ask for results, as pure
functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from popmq._calls import send_calls
from popmq._calls.message_rows import Numbering, message_rows
from popmq._calls.send_calls import SEND_BYTES_MAX
from popmq._given import checking
from popmq._given.fields import ENTRIES_MAX, ms
from popmq._transport.call import Call
from popmq.errors import InvalidField, ResultTimeout
from popmq.message import Send, SendReceipt
from popmq.outcome import RESULT_BYTES_MAX, Result, set_result
from popmq_proto.v1 import popmq_pb2 as pb

if TYPE_CHECKING:
    from popmq.message import Body, Message
    from popmq.outcome import Acked


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
    results: Sequence[Result | None] = (),
) -> Call[list[SendReceipt]]:
    """Acks `handles`, makes `changes` and stores all messages, or does nothing; reads the receipts in that order.

    `results`: one or None for each handle, or none at all. Every try has the same request number: one whose answer was
    lost is not done a second time.
    """
    request = pb.SettleRequest(group=group, handles=handles, changes=changes)
    if any(results):
        request.results.extend(result_rows(results))
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


def fitting(waiting: Sequence[Acked]) -> int:
    """How many of the deliveries that wait fit into one request, with all that goes with their acks; at least one."""
    messages = size = 0
    for number, outcome in enumerate(waiting):
        messages += sum(len(each.rows) for each in outcome.sends)
        size += sum(each.size for each in outcome.sends)
        size += 0 if outcome.result is None else len(outcome.result.body)
        if number and (number == ENTRIES_MAX or messages > ENTRIES_MAX or size > SEND_BYTES_MAX):
            return number
    return len(waiting)


# ── Results ──────────────────────────────────────────────────────────────────────────────────────────────────────────

#: Seconds that one request waits at most; a longer wait is several.
WAIT_S = 20.0


def checked_result(result: object) -> Result:
    """The result, if it can be given. Raises TypeError, InvalidField."""
    if not isinstance(result, Result):
        raise TypeError(f"the result is of type {type(result).__name__}: give popmq.Result(value)")
    if result.failed:
        raise InvalidField("a failed result cannot be given", code="INVALID_FIELD", action="reject the delivery")
    if len(result.body) > RESULT_BYTES_MAX:
        raise InvalidField(
            f"the result has {len(result.body)} bytes, at most {RESULT_BYTES_MAX} are allowed",
            code="INVALID_FIELD",
            field="result",
            action="store it elsewhere, and give its address as the result",
        )
    return result


def listed_results(results: Result | Iterable[Result | None], deliveries: int) -> list[Result | None]:
    """One for each delivery, or none at all. Raises TypeError, InvalidField."""
    found = [results] if isinstance(results, Result) else list(results)
    if found and len(found) != deliveries:
        raise InvalidField(
            f"there are {len(found)} results for {deliveries} deliveries",
            code="INVALID_FIELD",
            field="results",
            action="give one for each delivery, and None for one without a result",
        )
    return [each if each is None else checked_result(each) for each in found]


def result_rows(results: Sequence[Result | None]) -> list[pb.DeliveryResult]:
    """Results as the contract has them: each with the place of its handle."""
    return [
        pb.DeliveryResult(handle=place, body=each.body, content_type=each.content_type)
        for place, each in enumerate(results)
        if each is not None
    ]


def get_results(group: str, message_ids: Sequence[str], wait: float, at_least: int) -> Call[tuple[list[Result], bool]]:
    """The results that are there, and whether more of them did not fit into the answer."""
    request = checking.built(
        pb.GetResultsRequest, "", group=group, message_ids=message_ids, wait_ms=ms(wait), min_results=at_least
    )

    def read(reply: pb.GetResultsResponse, _retried: bool) -> tuple[list[Result], bool]:
        return [_read_result(row) for row in reply.results], reply.full

    return Call("Broker.GetResults", request, read, "pop", wait)


def _read_result(row: pb.Result) -> Result:
    failed, failure = row.HasField("failure"), row.failure
    how = (True, failure.reason, failure.attempts) if failed else (False, "", 0)
    return set_result(Result.__new__(Result), row.body, row.content_type, row.message_id, *how, row.stored_ms)


def store_results(group: str, results: Mapping[str, Result]) -> Call[None]:
    """Keeps results by message id. Raises TypeError, InvalidField."""
    ids_of(results)
    rows = []
    for message_id, each in results.items():
        result = checked_result(each)
        rows.append(pb.MessageResult(message_id=message_id, body=result.body, content_type=result.content_type))
    request = checking.built(pb.StoreResultsRequest, "", group=group, results=rows)
    return Call("Broker.StoreResults", request, lambda _reply, _retried: None, "settle")


def forget_results(group: str, message_ids: Sequence[str]) -> Call[None]:
    """Forgets results."""
    request = checking.built(pb.ForgetResultsRequest, "", group=group, message_ids=message_ids)
    return Call("Broker.ForgetResults", request, lambda _reply, _retried: None, "settle")


def ids_of(message_ids: str | Iterable[str]) -> list[str]:
    """One id or several, each once. Raises TypeError, InvalidField."""
    found = [message_ids] if isinstance(message_ids, str) else list(dict.fromkeys(message_ids))
    if wrong := next((each for each in found if not isinstance(each, str)), None):
        raise TypeError(
            f"a message id is {wrong!r:.80}, of type {type(wrong).__name__}: give the message_id of a receipt"
        )
    if not 1 <= len(found) <= ENTRIES_MAX:
        raise InvalidField(
            f"there are {len(found)} message ids, it must be 1–{ENTRIES_MAX}", code="INVALID_FIELD", field="message_ids"
        )
    return found


def no_result(message_id: str, group: str, wait: float) -> ResultTimeout:
    """The error when nothing came in time."""
    return ResultTimeout(
        f"message {message_id} has no result for group {group!r} within {wait:g} s",
        code="RESULT_TIMEOUT",
        action=f"give it more time, or see what became of the message: popmq why {message_id}",
    )
