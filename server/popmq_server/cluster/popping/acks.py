"""Ack and ChangeInvisibleTime: of the broker that each handle names, whichever gateway popped the message.

    Ack        a batch for each broker (200151), which stores one record, and is that of all calls of a turn of the
               event loop; ordered deliveries singly (200051). One code answers for a batch: when a broker refuses one,
               each of its messages is acked alone
    extend     200053; a normal delivery has another handle from then on, an ordered one keeps its own
    release    200053 with the delay, or that of the group's backoff by the attempt that the handle names
    reject     the message read again, written as a dead letter, and acked

A handle whose lease is over by its broker's clock is refused here, since brokers answer OK to it. So is a change of a
normal delivery that may have been carried out before, by a gateway that has died or a connection that was lost: brokers
take the old handle again, and then the message has two leases, each of which delivers it.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from popmq_remoting import RemotingError, Response, ResponseCode
from popmq_remoting.errors import BadFormat, BrokerRefused, DeadlineOver
from popmq_remoting.messages import properties
from popmq_remoting.pops.acks import PopAck
from popmq_remoting.requests import popping
from popmq_server.cluster import names
from popmq_server.cluster.brokers import CALL_S, in_lanes, succeeded
from popmq_server.cluster.collecting import Collector, Share, packed
from popmq_server.cluster.popping.dead import DeadLetters, delivered
from popmq_server.cluster.popping.sessions import Held
from popmq_server.cluster.recent import Recent
from popmq_server.cluster.refusals import Asked, refusal
from popmq_server.cluster.shared import Shared
from popmq_server.cluster.signed.handles import SignedDelivery
from popmq_server.contract.commands import Ack, Acked, Change, Changed, ChangeInvisibleTime, Renewed
from popmq_server.errors import Refused, lapsed
from popmq_server.values.records import Group

_NO_REASON = "rejected"
#: Acks of one request to a broker, unless one call has more: 700 KB.
ACKS_MAX = 4_096


class _Batch(NamedTuple):
    """The acks of one call at one broker. `group`: as PopMQ calls it."""

    broker: str
    group: str
    acks: list[PopAck]


class Acks:
    """Acks and changes of leases, at the broker that each handle names."""

    def __init__(self, shared: Shared, held: Held, dead: DeadLetters) -> None:
        self._brokers, self._groups, self._handles = shared.brokers, shared.groups, shared.handles
        self._held, self._dead, self._now_ms = held, dead, shared.now_ms
        self._collected = Collector[_Batch, RemotingError | None](self._planned)
        self._rejects = Recent[tuple[str, str], Changed]()

    async def ack(self, command: Ack) -> Acked:
        """One result for each handle. Raises Refused GROUP_NOT_FOUND."""
        await self._groups.get(command.group)
        texts = [str(handle) for handle in command.handles]
        read = self._handles.each(texts, command.group, self._brokers.now_ms)
        results: list[Refused | None] = [each if isinstance(each, Refused) else None for each in read]
        batches: dict[str, list[int]] = {}
        single = list[int]()
        for index, each in enumerate(read):
            if isinstance(each, SignedDelivery):
                singly = each.handle.is_ordered
                (single if singly else batches.setdefault(each.handle.broker, [])).append(index)

        async def one(index: int) -> None:
            results[index] = await self._acked(_delivery(read[index]), command.group)

        async def batch(broker: str, members: list[int]) -> None:
            found = await self._batch(broker, command.group, [_delivery(read[index]) for index in members])
            for index, result in zip(members, found, strict=True):
                results[index] = result

        if len(batches) == 1 and not single:
            await batch(*batches.popitem())
        else:
            await asyncio.gather(in_lanes(single, one), *(batch(broker, each) for broker, each in batches.items()))
        topics: dict[str, int] = {}
        for text, each, result in zip(texts, read, results, strict=True):
            if result is None and isinstance(each, SignedDelivery):
                self._held.remove(text)
                topics[each.topic] = topics.get(each.topic, 0) + 1
        return Acked(results, {names.shown(topic): count for topic, count in topics.items()})

    async def _batch(self, broker: str, group: str, deliveries: Sequence[SignedDelivery]) -> list[Refused | None]:
        """Acks deliveries in one request, with those of other calls; singly if that tells nothing of each."""
        known = names.broker_group(group)
        acks = [PopAck(each.topic, known, each.handle) for each in deliveries]
        error: RemotingError | None
        try:
            error = await self._collected.ask(_Batch(broker, group, acks), self._brokers.until_s())
        except DeadlineOver as late:
            error = late
        results: list[Refused | None] = [None] * len(deliveries)
        if isinstance(error, BrokerRefused | BadFormat):

            async def one(index: int) -> None:
                results[index] = await self._acked(deliveries[index], group)

            await in_lanes(range(len(deliveries)), one)
        elif error is not None:
            results = [refusal(error, Asked(broker, group=group)) for _ in deliveries]
        return results

    def _planned(self, turn: Sequence[_Batch]) -> Iterator[Share[RemotingError | None]]:
        by_broker: dict[str, list[int]] = {}
        for place, batch in enumerate(turn):
            by_broker.setdefault(batch.broker, []).append(place)
        for broker, places in by_broker.items():
            for members in packed(places, lambda place: len(turn[place].acks), ACKS_MAX):
                yield Share(members, self._together(broker, [turn[member] for member in members]))

    async def _together(self, broker: str, batches: Sequence[_Batch]) -> list[RemotingError | None]:
        """Acks the batches of several calls in one request; what is wrong with it is the outcome of each."""
        acks = [each for batch in batches for each in batch.acks]
        asked = Asked(broker, group=batches[0].group)
        try:
            await self._brokers.tried(asked, popping.batch_ack(broker, acks), succeeded, self._brokers.until_s())
        except RemotingError as error:
            return [error] * len(batches)
        return [None] * len(batches)

    async def _acked(self, delivery: SignedDelivery, group: str) -> Refused | None:
        request = popping.ack(delivery.topic, names.broker_group(group), delivery.handle)
        asked = Asked(delivery.handle.broker, names.shown(delivery.topic), group)
        try:
            return await self._brokers.call(asked, request, _gone)
        except Refused as refused:
            return refused

    async def close(self) -> None:
        """Waits for the acks that are under way, at most as long as a call takes."""
        await self._collected.close(CALL_S)

    # ── Changes ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def change(self, command: ChangeInvisibleTime) -> list[Changed | Renewed | Refused]:
        """One result for each change. Raises Refused GROUP_NOT_FOUND."""
        group = await self._groups.get(command.group)
        results: list[Changed | Renewed | Refused] = [Changed(0, False)] * len(command.changes)

        async def one(index: int) -> None:
            change = command.changes[index]
            try:
                results[index] = (
                    change
                    if isinstance(change, Refused)
                    else await self._changed(group, change, repeated=command.repeated_try)
                )
            except Refused as refused:
                results[index] = refused

        await in_lanes(range(len(command.changes)), one)
        return results

    async def _changed(self, group: Group, change: Change, *, repeated: bool) -> Changed | Renewed:
        text = str(change.handle)
        (delivery,) = self._handles.each([text], group.name, self._brokers.now_ms)
        if isinstance(delivery, Refused):
            delivery.field = "handle"
            raise delivery
        if repeated and not delivery.handle.is_ordered:
            raise _unknown()
        if change.kind == "reject":
            return await self._rejected_once(group, delivery, change, text)
        delay_ms = change.delay_ms
        if delay_ms is None:
            delay_ms = group.backoff_ms(delivery.attempt)
        if change.kind != "extend":
            self._held.remove(text)
        request = popping.change(delivery.topic, names.broker_group(group.name), delivery.handle, delay_ms)
        asked = Asked(delivery.handle.broker, names.shown(delivery.topic), group.name)
        try:
            renewed = await self._brokers.tried(
                asked, request, lambda answer: popping.changed(answer, delivery.handle), self._brokers.until_s()
            )
        except RemotingError as error:
            if error.maybe_done and not delivery.handle.is_ordered:
                raise _unknown() from error
            raise refusal(error, asked) from error
        if renewed is None:
            raise lapsed("handle")
        visible_ms = self._now_ms() + delay_ms
        if change.kind != "extend" or renewed == delivery.handle:
            return Changed(visible_ms, False)
        signed = self._signed(delivery._replace(handle=renewed), group.name)
        self._held.renamed(text, signed)
        return Renewed(visible_ms, False, signed)

    def _signed(self, delivery: SignedDelivery, group: str) -> str:
        try:
            return self._handles.write(delivery, group).decode()
        except BadFormat as bad:
            raise _unknown() from bad

    async def _rejected_once(self, group: Group, delivery: SignedDelivery, change: Change, text: str) -> Changed:
        """One dead letter for a client that gives a message up again, since it did not hear the answer."""
        key = group.name, text
        if (task := self._rejects.known(key)) is None:
            task = asyncio.ensure_future(self._rejected(group, delivery, change, text))
            self._rejects.keep(key, task)
        return await asyncio.shield(task)

    async def _rejected(self, group: Group, delivery: SignedDelivery, change: Change, text: str) -> Changed:
        stored = await delivered(self._brokers, delivery, group.name)
        if stored is None:
            raise lapsed("handle")
        await self._dead.bury(
            delivery,
            group.name,
            stored,
            properties.read(stored.properties),
            attempts=delivery.attempt,
            reason=change.reason or _NO_REASON,
        )
        self._held.remove(text)
        return Changed(0, True)


def _unknown() -> Refused:
    """HANDLE_LAPSED for a delivery whose handle may have been replaced: nobody knows the new one."""
    return Refused(
        "HANDLE_LAPSED",
        "the answer to a change of this lease was lost: it is not known whether its handle still works",
        field="handle",
        action="drop the message: it is delivered again when its lease is over",
    )


def _gone(answer: Response) -> Refused | None:
    """The refusal of an ack if the queue may not have the message any more; None: OK. Raises BrokerRefused."""
    if answer.code == ResponseCode.NO_MESSAGE:
        return lapsed("handles")
    succeeded(answer)
    return None


def _delivery(read: SignedDelivery | Refused) -> SignedDelivery:
    assert isinstance(read, SignedDelivery)
    return read


BY_ACKS = Ack.awaited_by(Acks.ack) | ChangeInvisibleTime.awaited_by(Acks.change)
