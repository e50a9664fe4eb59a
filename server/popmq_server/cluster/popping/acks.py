"""Ack and ChangeInvisibleTime: of the broker that each handle names, whichever gateway popped the message.

    Ack        a batch for each broker (200151), which stores one record; ordered deliveries singly (200051). One code
               answers for a batch: when a broker refuses one, each of its messages is acked alone
    extend     200053; a normal delivery has another handle from then on, an ordered one keeps its own
    release    200053 with the delay, or that of the group's backoff by the attempt that the handle names
    reject     the message read again, written as a dead letter, and acked

A handle whose lease is over by its broker's clock is refused here, since brokers answer OK to it.
"""

import asyncio
from collections.abc import Sequence

from popmq_remoting import RemotingError, Response, ResponseCode
from popmq_remoting.errors import BrokerRefused
from popmq_remoting.messages import properties
from popmq_remoting.pops.acks import PopAck
from popmq_remoting.requests import popping
from popmq_server.cluster import names
from popmq_server.cluster.brokers import in_lanes, succeeded
from popmq_server.cluster.popping.dead import DeadLetters, delivered
from popmq_server.cluster.popping.sessions import Held
from popmq_server.cluster.refusals import Asked, refusal
from popmq_server.cluster.shared import Shared
from popmq_server.cluster.signed.handles import SignedDelivery
from popmq_server.contract.commands import Ack, Acked, Change, Changed, ChangeInvisibleTime, Renewed
from popmq_server.errors import Refused, lapsed
from popmq_server.values.records import Group

_NO_REASON = "rejected"


class Acks:
    """Acks and changes of leases, at the broker that each handle names. One for a process."""

    def __init__(self, shared: Shared, held: Held, dead: DeadLetters) -> None:
        self._brokers, self._groups, self._handles = shared.brokers, shared.groups, shared.handles
        self._held, self._dead, self._now_ms = held, dead, shared.now_ms

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
            try:
                await self._batch(broker, command.group, [_delivery(read[index]) for index in members])
            except BrokerRefused:  # its one code tells nothing of each
                await in_lanes(members, one)
            except (RemotingError, Refused) as error:
                refused = error if isinstance(error, Refused) else refusal(error, Asked(broker, group=command.group))
                for index in members:
                    results[index] = refused

        await asyncio.gather(in_lanes(single, one), *(batch(broker, members) for broker, members in batches.items()))
        topics: dict[str, int] = {}
        for text, each, result in zip(texts, read, results, strict=True):
            if result is None and isinstance(each, SignedDelivery):
                self._held.remove(text)
                name = names.shown(each.topic)
                topics[name] = topics.get(name, 0) + 1
        return Acked(results, topics)

    async def _batch(self, broker: str, group: str, deliveries: Sequence[SignedDelivery]) -> None:
        """Acks deliveries in one request. Raises RemotingError, Refused."""
        known = names.broker_group(group)
        acks = [PopAck(each.topic, each.handle) for each in deliveries]
        request = popping.batch_ack(broker, known, acks)
        await self._brokers.tried(Asked(broker, group=group), request, succeeded, self._brokers.until_s())

    async def _acked(self, delivery: SignedDelivery, group: str) -> Refused | None:
        request = popping.ack(delivery.topic, names.broker_group(group), delivery.handle)
        asked = Asked(delivery.handle.broker, names.shown(delivery.topic), group)
        try:
            return await self._brokers.call(asked, request, _gone)
        except Refused as refused:
            return refused

    # ── Changes ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def change(self, command: ChangeInvisibleTime) -> list[Changed | Renewed | Refused]:
        """One result for each change. Raises Refused GROUP_NOT_FOUND."""
        group = await self._groups.get(command.group)
        results: list[Changed | Renewed | Refused] = [Changed(0, False)] * len(command.changes)

        async def one(index: int) -> None:
            change = command.changes[index]
            try:
                results[index] = change if isinstance(change, Refused) else await self._changed(group, change)
            except Refused as refused:
                results[index] = refused

        await in_lanes(range(len(command.changes)), one)
        return results

    async def _changed(self, group: Group, change: Change) -> Changed | Renewed:
        text = str(change.handle)
        (delivery,) = self._handles.each([text], group.name, self._brokers.now_ms)
        if isinstance(delivery, Refused):
            delivery.field = "handle"
            raise delivery
        if change.kind == "reject":
            return await self._rejected(group, delivery, change, text)
        delay_ms = change.delay_ms
        if delay_ms is None:
            delay_ms = group.backoff_ms(delivery.attempt)
        if change.kind != "extend":
            self._held.remove(text)
        request = popping.change(delivery.topic, names.broker_group(group.name), delivery.handle, delay_ms)
        asked = Asked(delivery.handle.broker, names.shown(delivery.topic), group.name)
        renewed = await self._brokers.call(asked, request, lambda answer: popping.changed(answer, delivery.handle))
        if renewed is None:
            raise lapsed("handle")
        visible_ms = self._now_ms() + delay_ms
        if change.kind != "extend" or renewed == delivery.handle:
            return Changed(visible_ms, False)
        signed = self._handles.write(delivery._replace(handle=renewed), group.name).decode()
        self._held.renamed(text, signed)
        return Renewed(visible_ms, False, signed)

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
