"""Clients that fall silent at one of two gateways, which ask each other through the brokers of a real RocketMQ."""

from __future__ import annotations

import asyncio

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.cluster.popping import sessions
from popmq_server.contract import commands as do
from popmq_server.contract.commands.sessions import ClientAnswer, ShownMessage
from tests.cluster.real.calls import body, created, pop_all, send, until_met
from tests.cluster.real.conftest import Rig
from tests.remoting.jumping import until

pytestmark = pytest.mark.interop

#: A lease that is given back is over after 1 s, and comes again within 6 s.
BACK_MS = 12_000


async def met(*gateways: ClusterEngine) -> None:
    """Each knows the others."""
    for each in gateways:
        await each.execute(do.RenewSession("somebody"))
    await until_met(*gateways)


async def test_what_a_silent_client_held_comes_again_and_what_it_acked_elsewhere_does_not(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SILENT_S", 4.0)
    monkeypatch.setattr(sessions, "SWEEP_S", 0.5)
    async with rig.gateway() as one, rig.gateway() as other:
        await created(one, rig)
        await met(one, other)
        await send(one, rig, *(pb.Message(message_id=f"id-{n}", body=b"%d" % n) for n in range(2)))
        for client in ("killed", "moved"):
            await one.execute(do.RenewSession(client))
        killed = await pop_all(one, rig, 1, max_messages=1, client_id="killed", session=True)  # type: ignore[arg-type]
        moved = await pop_all(one, rig, 1, max_messages=1, client_id="moved", session=True)  # type: ignore[arg-type]
        await other.execute(do.RenewSession("moved"))
        acked = await other.execute(do.Ack(rig.group, (moved[0][5].decode(),)))
        assert acked.results == [None]
        beats = asyncio.ensure_future(_beats(other, "moved"))
        again = await pop_all(other, rig, 1)
        assert list(map(body, again)) == list(map(body, killed))
        await until(lambda: not one.pops.held.clients())
        beats.cancel()
        assert (await other.pop(do.Pop(rig.topic, rig.group), BACK_MS)).rows == []


async def _beats(engine: ClusterEngine, client: str) -> None:
    """The client makes calls at a gateway."""
    while True:
        await engine.execute(do.RenewSession(client))
        await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=1.0)


async def test_a_lease_that_is_given_back_after_its_ack_is_delivered_again_by_brokers(rig: Rig) -> None:
    """Why a gateway asks the others first."""
    async with rig.gateway() as one, rig.gateway() as other:
        await created(one, rig)
        await send(one, rig, pb.Message(message_id="id", body=b"0"))
        rows = await pop_all(one, rig, 1, client_id="client", session=True)  # type: ignore[arg-type]
        acked = await other.execute(do.Ack(rig.group, (rows[0][5].decode(),)))
        assert acked.results == [None]
        delivery = one.shared.handles.read(rows[0][5].decode(), rig.group)
        await sessions.given_back(one.shared.brokers, delivery, rig.group)
        assert list(map(body, await pop_all(other, rig, 1))) == [b"0"]


async def test_a_client_at_another_gateway_is_asked_through_the_brokers_without_a_member_connection(rig: Rig) -> None:
    shown = list[ShownMessage | None]()

    async def asks(message: ShownMessage | None) -> ClientAnswer:
        shown.append(message)
        return ClientAnswer("OK", "main: waiting" if message is None else "done")

    async with rig.gateway() as one, rig.gateway() as other:
        await created(one, rig)
        (place,) = await send(one, rig, pb.Message(message_id="id", body=b"0"))
        await met(one, other)
        await other.execute(do.Heartbeat(rig.group, "client", frozenset((rig.topic,)), asks=asks))
        assert await one.ask(do.AskClient("client")) == ClientAnswer("OK", "main: waiting")
        asked = do.AskClient("client", rig.topic, place.queue, place.offset)  # type: ignore[union-attr]
        assert await one.ask(asked) == ClientAnswer("OK", "done")
        assert len(other.members.connections) == 0
        assert [each and pb.Message.FromString(each.data).body for each in shown] == [None, b"0"]
