"""The parts together, over the brokers of tests/remoting/fake: what one gateway hands out, another one can use."""

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting import Cluster
from popmq_remoting.errors import BrokerRefused
from popmq_remoting.pops.acks import PopAck
from popmq_remoting.requests import name_server, popping, sending
from popmq_remoting.requests.popping import BrokerPop
from popmq_remoting.requests.sending import HalfPlace, SendTarget
from popmq_server.cluster import layout, names
from popmq_server.cluster.layout import Agreed
from popmq_server.cluster.messages.from_broker import message_bytes
from popmq_server.cluster.messages.to_broker import SendLimits, to_broker
from popmq_server.cluster.refusals import Asked, refusal
from popmq_server.cluster.sending import gathering
from popmq_server.cluster.signed import transactions
from popmq_server.cluster.signed.handles import Handles, SignedDelivery
from popmq_server.cluster.signed.secrets import Secrets
from popmq_server.cluster.signed.transactions import SignedHalf
from popmq_server.errors import Refused
from popmq_server.protocols import entries
from tests.remoting.fake.broker import loop_ms
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.jumping import jumping, passed
from tests.remoting.routing.fake_client import client, soon

TOPIC, GROUP = names.broker_topic("shop.orders"), names.broker_group("shop.bill")
TARGET = SendTarget(TOPIC, TOPIC, 1, "a")
SECRET = b"the secret that all gateways share"


async def send(cluster: Cluster, *messages: pb.Message) -> list[tuple[int, int, int]]:
    """Sends them as callers of one turn of the event loop; returns (place, queue id, offset) of each."""
    limits = SendLimits(TOPIC, loop_ms())
    asked = [to_broker(entries.new_message(each.SerializeToString(), each, ("", 0, 0)), limits) for each in messages]
    places = []
    for gathered in gathering.planned(asked):
        outcome = sending.sent(await cluster.call("a", gathered.request(TARGET), soon()))
        gathered.check(outcome)
        places += [(member, outcome.queue_id, outcome.queue_offset + n) for n, member in enumerate(gathered.members)]
    return places


async def pop(cluster: Cluster) -> list[tuple[pb.Message, str]]:
    """Messages with the handles that a client gets."""
    asked_ms, clock = loop_ms(), cluster.clock("a")
    wanted = BrokerPop(TOPIC, GROUP, 30_000, clock.pop_born_ms())
    outcome = popping.popped(await cluster.call("a", popping.pop(wanted), soon()), "a")
    if outcome.pop_ms:
        clock.learn(outcome.pop_ms, asked_ms)
    handles = Handles(Secrets([SECRET]))
    return [
        (
            pb.Message.FromString(message_bytes(row.message, row.properties)),
            handles.write(SignedDelivery(TOPIC, row.handle), GROUP).decode(),
        )
        for row in outcome.rows
    ]


@jumping
async def test_messages_of_one_turn_are_delivered_as_they_were_sent_and_another_gateway_acks_them() -> None:
    async with FakeCluster(skew_ms=60_000) as fake, client(fake) as one, client(fake) as other:
        fake.create(TOPIC, group=GROUP)
        messages = [
            pb.Message(message_id="id-1", body=b"one", tag="red", properties={"colour": "grün"}, born_ms=5),
            pb.Message(message_id="id-2", body=b"two", keys=["a", "b"], born_ms=6),
            pb.Message(message_id="id-3", body=b"three", message_group="m", born_ms=7),
        ]
        assert await send(one, *messages) == [(0, 1, 0), (1, 1, 1), (2, 1, 2)]
        rows = await pop(one)
        assert [message for message, _ in rows] == messages
        await pop(other)  # so that it knows the broker's clock too
        read = Handles(Secrets([b"an older secret", SECRET])).each(
            [handle for _, handle in rows], GROUP, lambda broker: other.clock(broker).now_ms()
        )
        acks = [PopAck(each.topic, GROUP, each.handle) for each in read if isinstance(each, SignedDelivery)]
        assert len(acks) == 3
        (await other.call("a", popping.batch_ack("a", acks), soon())).expect()
        await passed(31.0)
        assert await pop(one) == []


@jumping
async def test_a_lease_is_over_by_the_brokers_clock_and_not_by_ours() -> None:
    async with FakeCluster(skew_ms=60_000) as fake, client(fake) as cluster:
        fake.create(TOPIC, group=GROUP)
        await send(cluster, pb.Message(message_id="id-1", body=b"one"))
        ((_, handle),) = await pop(cluster)
        handles = Handles(Secrets([SECRET]))
        for after_s, over in ((0.0, False), (28.0, False), (4.0, True)):
            await passed(after_s)
            (found,) = handles.each([handle], GROUP, lambda broker: cluster.clock(broker).now_ms())
            assert isinstance(found, Refused) == over


@jumping
async def test_another_gateway_ends_a_transaction_by_its_id_alone() -> None:
    async with FakeCluster() as fake, client(fake) as one, client(fake) as other:
        fake.create(TOPIC, group=GROUP)
        message = pb.Message(message_id="id-1", body=b"half", transaction=True)
        half = to_broker(
            entries.new_message(message.SerializeToString(), message, ("", 0, 0)), SendLimits(TOPIC, loop_ms())
        )
        request = sending.send(TARGET, half.body, half.properties, half.born_ms, half.sys_flag)
        outcome = sending.sent(await one.call("a", request, soon()))
        place = HalfPlace(TOPIC, TOPIC, "id-1", outcome.transaction_id, outcome.queue_offset, 0)
        text = transactions.write(Secrets([SECRET]), SignedHalf("a", place, False))
        assert await pop(one) == []
        signed = transactions.read(Secrets([SECRET]), text)
        end = sending.end_transaction(signed.half, commit=True, from_check=signed.from_check)
        (await other.call(signed.broker, end, soon())).expect()
        ((shown, _),) = await pop(one)
        assert (shown.message_id, shown.body) == ("id-1", b"half")


@jumping
async def test_a_layout_is_known_while_one_name_server_has_it_and_written_where_it_is_missing() -> None:
    async with FakeCluster(("a", "b"), name_servers=2) as fake, client(fake) as cluster:
        fake.create(TOPIC, queues=2, group=GROUP)
        route = await cluster.route(TOPIC, soon())
        assert route is not None
        first = layout.of_route({broker: queues.write for broker, queues in route.queues.items()})
        asked = name_server.get_kv(layout.namespace(is_fifo=False), TOPIC)

        async def agreed() -> Agreed | None:
            answers = await cluster.name_servers.tell_all(asked, soon())
            return layout.agreed("shop.orders", layout.kept("shop.orders", answers))

        assert await agreed() is None
        write = name_server.put_kv(layout.namespace(is_fifo=False), TOPIC, first.text())
        await cluster.name_servers.tell_all(write, soon())
        assert await agreed() == Agreed(first, True)
        fake.name_servers[0].kv.clear()
        assert await agreed() == Agreed(first, False)
        await fake.name_servers[0].stop()
        assert await agreed() == Agreed(first, True)
        fake.name_servers[1].kv.clear()
        assert await agreed() is None


@jumping
async def test_what_a_broker_refuses_is_told_in_the_words_of_the_contract() -> None:
    async with FakeCluster() as fake, client(fake) as cluster:
        fake.create("other", group=GROUP)
        request = popping.pop(BrokerPop(TOPIC, GROUP, 30_000, cluster.clock("a").pop_born_ms()))
        with pytest.raises(BrokerRefused) as caught:
            (await cluster.call("a", request, soon())).expect()
        refused = refusal(caught.value, Asked("a", "shop.orders", "shop.bill"))
        assert (refused.code, refused.action) == ("TOPIC_NOT_FOUND", "popmq topic create shop.orders")
