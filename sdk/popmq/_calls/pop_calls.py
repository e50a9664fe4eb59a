"""Requests and responses of the data plane. Pure: each function builds a Call, which both clients run.

`Call.read` also learns whether an earlier try may have been carried out: when a repeated ack meets HANDLE_LAPSED, its
first try has settled the delivery, or the lease ended before any try arrived. Which of both is not known: LeaseLost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from popmq._given.fields import ENTRIES_MAX, ms
from popmq._runtime.later import Later
from popmq._transport.call import Call, error_of
from popmq.duration import Duration, seconds_of
from popmq.errors import HandleLapsed, InvalidField, LeaseLost, PartlyRefused, PopMQError
from popmq.topic import Assignment, Session
from popmq_proto.v1 import popmq_pb2 as pb

if TYPE_CHECKING:
    from popmq import message as _message
    from popmq import outcome as _outcomes
    from popmq._calls import deliveries as _deliveries
    from popmq._given import checking
    from popmq._given import reason as _reason
    from popmq.message import Delivery, DeliveryGuard
else:
    _deliveries = Later("popmq._calls.deliveries")
    _reason = Later("popmq._given.reason")
    _message = Later("popmq.message")
    _outcomes = Later("popmq.outcome")
    checking = Later("popmq._given.checking")


@dataclass(frozen=True, slots=True)
class Popped:
    """A pop's answer, with what lease renewal needs."""

    deliveries: list[Delivery]
    lease: float  # seconds from the pop to its deadline
    replay: bool


def all_or_raise(results: list[Any]) -> list[Any]:
    """`results` when none is an error; the error of a batch of one; PartlyRefused for several."""
    if any(isinstance(result, PopMQError) for result in results):
        raise results[0] if len(results) == 1 else PartlyRefused(results)
    return results


# ── Pop ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def pop(
    topic: str,
    group: str,
    *,
    client_id: str,
    max_messages: int,
    wait: float,
    invisible: Duration | None,
    queues: Sequence[int],
    max_bytes: int,
    attempt_id: str,
    filter: pb.Filter | None,
    guard: Callable[[float], DeliveryGuard],
    lite_topics: Sequence[str] = (),
) -> Call[Popped]:
    """Leases a batch, guarded by the object that `guard` makes for a lease of this length in seconds.

    `attempt_id` is the same in every try of this call, so that a retry gets the first one's batch.
    """
    checking.from_one(
        "", max_messages=max_messages, invisible=None if invisible is None else seconds_of(invisible, "invisible")
    )
    request = checking.built(
        pb.PopRequest,
        "",
        topic=topic,
        group=group,
        queues=queues,
        max_messages=max_messages,
        max_bytes=max_bytes,
        wait_ms=ms(wait),
        invisible_ms=ms(invisible or 0.0),
        client_id=client_id,
        attempt_id=attempt_id,
        filter=filter,
        lite_topics=checking.listed_texts(lite_topics, "lite_topics"),
    )

    def read(reply: pb.PopResponse, _retried: bool) -> Popped:
        until_ms = reply.invisible_until_ms
        lease = (until_ms - reply.popped_ms) / 1000
        guarding = guard(lease)
        deliveries = [_deliveries.read_delivery(row, topic, group, until_ms, guarding) for row in reply.deliveries]
        return Popped(deliveries, lease, reply.replay)

    return Call("Broker.Pop", request, read, "pop", wait)


def repeated(call: Call[Popped]) -> Call[Popped]:
    """The same pop once more, without waiting: it returns the batch of the first one."""
    request = pb.PopRequest()
    request.CopyFrom(call.request)
    request.wait_ms, request.max_messages = 0, 1  # if the first one has no batch, this one takes as little as it can
    return replace(call, request=request, wait=0.0)


# ── Ack, ChangeInvisibleTime ─────────────────────────────────────────────────────────────────────────────────────────


def ack(group: str, handles: Sequence[str], results: Sequence[pb.DeliveryResult] = ()) -> Call[list[Any]]:
    """Finishes deliveries, with results of some; reads None or the error of each."""
    count = len(handles)

    def read(reply: pb.AckResponse, retried: bool) -> list[PopMQError | None]:
        if not reply.results:
            return [None] * count
        return [_outcome(result, None, retried) for result in reply.results]

    return Call("Broker.Ack", pb.AckRequest(group=group, handles=handles, results=results), read, "settle")


def extend(handle: str, invisible: Duration) -> pb.InvisibleTimeChange:
    """The lease ends `invisible` seconds from now."""
    return pb.InvisibleTimeChange(handle=handle, extend=pb.Extend(invisible_ms=ms(invisible, "invisible")))


def release(
    handle: str, delay: Duration | None, uncounted: bool, reason: str, snooze: bool = False
) -> pb.InvisibleTimeChange:
    """Released: visible after `delay` seconds, None for the group's backoff."""
    change = pb.Release(
        uncounted=uncounted,
        reason=_reason.clip(reason),
        delay_ms=None if delay is None else ms(delay, "delay"),
        snooze=snooze,
    )
    return pb.InvisibleTimeChange(handle=handle, release=change)


def reject(handle: str, reason: str) -> pb.InvisibleTimeChange:
    """To the dead-letter topic."""
    return pb.InvisibleTimeChange(handle=handle, reject=pb.Reject(reason=_reason.clip(reason)))


def change(group: str, changes: Sequence[pb.InvisibleTimeChange]) -> Call[list[Any]]:
    """Extends, releases and rejects; reads an InvisibleTimeResult or the error of each."""
    settles = [not entry.HasField("extend") for entry in changes]

    def read(reply: pb.ChangeInvisibleTimeResponse, retried: bool) -> list[_outcomes.InvisibleTimeResult | PopMQError]:
        return [
            _outcome(
                result,
                _outcomes.InvisibleTimeResult(result.visible_ms, result.dead_lettered, result.handle),
                retried and settled,
            )
            for result, settled in zip(reply.results, settles, strict=True)
        ]

    request = pb.ChangeInvisibleTimeRequest(group=group, changes=changes)
    return Call("Broker.ChangeInvisibleTime", request, read, "settle", marked=True)


def _outcome(result: Any, done: Any, uncertain: bool) -> Any:
    """`done`, or the error of an entry. `uncertain`: an earlier try may have settled it."""
    if not result.HasField("error"):
        return done
    error = error_of(result.error)
    if not (uncertain and isinstance(error, HandleLapsed)):
        return error
    return LeaseLost(
        "the answer to an earlier try was lost, and now the delivery is over: it is not known whether that try settled "
        "it, or its lease expired before",
        code=error.code,
        action="drop the message: if the lease expired, it is delivered again",
    )


def failed(answer: Any) -> bool:
    """Whether the message comes again: the outcome was refused, or it was released and not dead-lettered."""
    return isinstance(answer, PopMQError) or (
        isinstance(answer, _outcomes.InvisibleTimeResult) and not answer.dead_lettered
    )


def handle_of(delivery: Delivery | str) -> str:
    """The handle that the broker knows now, of a delivery or as it is given."""
    return delivery if isinstance(delivery, str) else delivery.current_handle


def name_of(delivery: Delivery | str) -> str:
    """The handle by which this client knows a delivery."""
    return delivery if isinstance(delivery, str) else delivery.handle


def renewed(delivery: Delivery | str | None, answer: Any) -> None:
    """Keeps the new handle of a delivery whose lease was renewed, if the answer has one."""
    if isinstance(delivery, _message.Delivery) and isinstance(answer, _outcomes.InvisibleTimeResult) and answer.handle:
        delivery.rename(answer.handle)


def no_delivery(value: object, place: str) -> TypeError:
    """The error for what is neither a delivery nor a handle."""
    return TypeError(f"{place} is {value!r:.80}: give a popmq.Delivery, or its handle as a str with the group")


def listed(deliveries: Delivery | str | Iterable[Delivery | str]) -> list[Delivery | str]:
    """One or several as a list. Raises TypeError for what is neither."""
    if isinstance(deliveries, (_message.Delivery, str)):
        return [deliveries]
    if not hasattr(deliveries, "__iter__"):
        raise no_delivery(deliveries, "the delivery")
    return list(deliveries)


def one_group(deliveries: Sequence[Delivery | str], group: str) -> str:
    """The group of all of them; `group`: of bare handles. Raises InvalidField if there are several, or none."""
    groups = {name: indices[0] for name, indices in by_group(deliveries, group)}
    if len(groups) == 1:
        return next(iter(groups))
    what = f"the deliveries are of the groups {', '.join(sorted(groups))}" if groups else "there is no delivery to end"
    raise InvalidField(
        what, code="INVALID_FIELD", field="group" if groups else "deliveries", action="give deliveries of one group"
    )


def by_group(deliveries: Sequence[Delivery | str], group: str) -> Iterator[tuple[str, list[int]]]:
    """Indices of deliveries, cut into requests of one group each. `group`: the group of bare handles."""
    groups: dict[str, list[int]] = {}
    for index, delivery in enumerate(deliveries):
        try:
            name = group if isinstance(delivery, str) else delivery.group
        except AttributeError:
            raise no_delivery(delivery, f"deliveries[{index}]") from None
        groups.setdefault(name, []).append(index)
    for name, indices in groups.items():
        for start in range(0, len(indices), ENTRIES_MAX):
            yield name, indices[start : start + ENTRIES_MAX]


# ── Assignment and sessions ──────────────────────────────────────────────────────────────────────────────────────────


def query_assignment(topic: str, group: str, client_id: str, strategy: str = "") -> Call[Assignment]:
    """Which queues to read. `strategy`: of groups that pull; empty: AVG."""
    return Call(
        "Broker.QueryAssignment",
        pb.QueryAssignmentRequest(topic=topic, group=group, client_id=client_id, strategy=strategy),
        lambda reply, _: Assignment(
            reply.known, reply.all, tuple(reply.queues), pb.ConsumeMode.Name(reply.mode) if reply.mode else "POP"
        ),
    )


def heartbeat(
    group: str,
    client_id: str,
    topics: Iterable[str] = (),
    goodbye: bool = False,
    pops: Iterable[str] = (),
    pulls: Iterable[str] = (),
) -> Call[Session]:
    """Keeps this client's session alive, or ends it. It reads `topics` in either consume mode, the others in one."""
    request = pb.HeartbeatRequest(
        client_id=client_id, group=group, topics=topics, goodbye=goodbye, pop_topics=pops, pull_topics=pulls
    )
    return Call(
        "Broker.Heartbeat",
        request,
        lambda reply, _: Session(reply.interval_ms / 1000, reply.assignment_version),
    )
