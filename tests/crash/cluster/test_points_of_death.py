"""A gateway that is killed at a chosen point of a call: taps between it and the brokers say when.

Each round sends messages, lets a gateway begin a call, keeps the broker's answer (or the request) from it, and kills
it. The client repeats its call at the other gateway. What a killed gateway had leased comes again after its lease.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import popmq
from harness.gateway_process import GatewayProcess
from harness.rocketmq_cluster import RocketMQCluster
from popmq_remoting import RequestCode
from tests.crash.cluster.parts.judging import SLACK_S
from tests.crash.cluster.parts.rig import Doors, Kind, Record, doors
from tests.crash.cluster.parts.taps import ANSWER, REQUEST, Caught, Taps
from tests.crash.conftest import Scale

pytestmark = pytest.mark.chaos

#: Leases here are short: they end, and their messages come again within 6 s.
LEASE_S, AGAIN_S = 3.0, 6.0
#: Of deliveries that are acked within their lease, however long a gateway takes to start.
LONG_LEASE_S = 60.0
MESSAGES = 3
RETRY = popmq.Retry(longest=0.2)


class World:
    """Two gateways behind taps. The client is at the first one, and goes to the other one when its own is killed."""

    def __init__(self, taps: Taps, open_: Doors, client: popmq.Client) -> None:
        self.taps, self.client, self._doors = taps, client, open_
        self._kills = 0
        self.topic, self.group = open_.names.topic, open_.names.group
        self.sent, self.stored = list[str](), Counter[str]()
        self.acked = dict[str, float]()
        #: Deliveries after their ack, by more than SLACK_S.
        self.after_ack = list[str]()
        #: Seconds between the ends of leases and the next deliveries.
        self.late_s = list[float]()

    def send(self, count: int = MESSAGES) -> list[popmq.SendReceipt]:
        names = [f"m{len(self.sent) + number}" for number in range(count)]
        self.sent += names
        return [self.client.send(self.topic, popmq.Message(name, message_id=name)) for name in names]

    def pop(self, lease_s: float = LEASE_S) -> list[popmq.Delivery]:
        found = self.client.pop(self.topic, self.group, wait=2.0, invisible=lease_s)
        for each in found:
            if time.monotonic() > self.acked.get(each.message_id, float("inf")) + SLACK_S:
                self.after_ack.append(each.message_id)
        return found

    def taken(self, lease_s: float = LEASE_S) -> list[popmq.Delivery]:
        """A pop that finds something."""
        found = list[popmq.Delivery]()
        while not found:
            found = self.pop(lease_s)
        return found

    def ack(self, *deliveries: popmq.Delivery) -> None:
        """Acks what may still be acked; a message whose lease is over comes again."""
        for each in deliveries:
            with contextlib.suppress(popmq.errors.HandleLapsed):
                self.client.ack(each)
                self.acked[each.message_id] = time.monotonic()

    def _victim(self) -> GatewayProcess:
        """The gateway at which the client is."""
        self._kills += 1
        return self._doors.gateways[(self._kills - 1) % 2]

    @contextlib.contextmanager
    def killed_at(self, caught: Caught) -> Iterator[None]:
        """Kills the client's gateway when it is there, while the block calls; and starts it again."""
        gateway = self._victim()

        def kill() -> None:
            caught.wait()
            gateway.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        yield
        killer.join()
        gateway.start()

    @contextlib.contextmanager
    def killed(self) -> Iterator[None]:
        """The client's gateway is dead in the block."""
        gateway = self._victim()
        gateway.kill()
        yield
        gateway.start()

    def drain(self) -> None:
        """Acks all that comes, until all has been acked and a lease could have ended since."""
        until_s = time.monotonic() + 60.0
        while set(self.sent) - self.acked.keys() and time.monotonic() < until_s:
            if found := self.pop():
                self.ack(*found)
        until_s = time.monotonic() + LEASE_S + AGAIN_S
        while time.monotonic() < until_s:
            if found := self.pop():
                self.ack(*found)


@pytest.fixture
def world(rocketmq: RocketMQCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    kind: Kind = "TRANSACTION" if "transaction" in request.node.name else "NORMAL"
    with (
        Taps(rocketmq) as taps,
        doors(tmp_path, taps.name_server, in_turn=False, type=kind) as open_,
        popmq.Client(open_.endpoint, retry=RETRY) as client,
    ):
        yield World(taps, open_, client)


def kept(world: World, record: Record, fault: str, rounds: int, **more: float) -> None:
    """The verdict: nothing is lost, and nothing comes after its OK ack."""
    world.drain()
    lost = set(world.sent) - world.acked.keys()
    counts: dict[str, float] = {"kills": rounds, "sent": len(world.sent), "acked": len(world.acked), "lost": len(lost)}
    counts |= {"after_ack": len(world.after_ack)} | more
    told = ", ".join(f"{name.replace('_', ' ')} {count:,g}" for name, count in counts.items())
    record(f"a gateway dies between {fault}", "gateways", counts, told)
    assert (lost, world.after_ack) == (set(), [])


def test_messages_that_a_gateway_popped_and_never_delivered_come_after_their_lease(
    world: World, scale: Scale, record: Record
) -> None:
    rounds, again = scale.pick(short=1, whole=5), list[float]()
    for _ in range(rounds):
        world.send()
        with world.killed_at(world.taps.catch(RequestCode.POP_MESSAGE, ANSWER)):
            leased_s = time.monotonic()
            world.ack(*world.pop())
        while set(world.sent) - world.acked.keys():
            for each in world.taken():
                if each.attempt == 2:  # a third one follows a lease of the test's own, which was over
                    again.append(time.monotonic() - leased_s - LEASE_S)
                world.ack(each)
    assert again, "the killed gateway had messages"
    kept(
        world,
        record,
        "a pop and its answer",
        rounds,
        redelivered=len(again),
        longest_after_the_lease_s=round(max(again), 1),
    )
    assert max(again) < 5 * AGAIN_S, "beside other work brokers look later for leases that are over"


def test_deliveries_of_a_killed_gateway_are_acked_at_the_other_one(world: World, scale: Scale, record: Record) -> None:
    rounds, acked = scale.pick(short=1, whole=5), 0
    for _ in range(rounds):
        world.send()
        found = world.taken(LONG_LEASE_S)
        with world.killed():
            world.ack(*found)
        assert {each.message_id for each in found} <= world.acked.keys()
        acked += len(found)
    kept(world, record, "an answer and its ack", rounds, acks_by_the_other=acked)


def test_an_ack_that_was_carried_out_and_not_answered_is_repeated_without_harm(
    world: World, scale: Scale, record: Record
) -> None:
    rounds = scale.pick(short=1, whole=5)
    for _ in range(rounds):
        world.send()
        found = world.taken(LONG_LEASE_S)
        with world.killed_at(world.taps.catch(RequestCode.BATCH_ACK_MESSAGE, ANSWER)):
            world.ack(*found)
        assert {each.message_id for each in found} <= world.acked.keys()
    kept(world, record, "an ack and its answer", rounds)


def test_a_message_whose_renewal_was_not_answered_comes_again_and_is_not_lost(
    world: World, scale: Scale, record: Record
) -> None:
    rounds, lapsed, twice = scale.pick(short=1, whole=5), 0, 0
    for _ in range(rounds):
        world.send(1)
        (found,) = world.taken()
        with world.killed_at(world.taps.catch(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ANSWER)):
            try:
                world.client.extend(found, LEASE_S)
            except popmq.errors.HandleLapsed:
                lapsed += 1
        again = world.taken()
        twice += len(again) - 1
        assert {each.message_id for each in again} == {found.message_id}
        world.ack(*again)
    kept(world, record, "a renewal and its answer", rounds, handles_told_over=lapsed, twice_at_once=twice)
    assert (lapsed, twice) == (rounds, 0)


def test_a_send_that_was_stored_and_not_answered_is_delivered_with_its_one_id(
    world: World, scale: Scale, record: Record
) -> None:
    rounds, twice = scale.pick(short=1, whole=5), Counter[str]()
    for _ in range(rounds):
        with world.killed_at(world.taps.catch(RequestCode.SEND_MESSAGE_V2, ANSWER)):
            world.send(1)
        name = world.sent[-1]
        until_s = time.monotonic() + 3.0
        while time.monotonic() < until_s:
            for each in world.pop():
                twice[each.message_id] += 1
                world.client.ack([each])
        assert twice[name] in (1, 2)
        world.acked[name] = time.monotonic()
    kept(world, record, "a send and its answer", rounds, stored_twice=sum(count == 2 for count in twice.values()))


@pytest.mark.parametrize("kind", [REQUEST, ANSWER])
def test_a_transaction_whose_check_a_killed_gateway_did_not_finish_is_committed_once(
    world: World, scale: Scale, record: Record, kind: str
) -> None:
    rounds, ends, asked = scale.pick(short=1, whole=5), dict[str, popmq.transaction.Resolution](), Counter[str]()

    def on_check(check: popmq.TransactionCheck) -> popmq.transaction.Resolution | None:
        asked[check.message.message_id] += 1
        return ends.get(check.message.message_id)

    world.client.transactions.on_check(world.topic, on_check)
    for _ in range(rounds):
        caught = world.taps.catch(RequestCode.END_TRANSACTION, kind)
        with world.killed_at(caught):
            name = f"m{len(world.sent)}"
            ends[name] = "commit"
            half = popmq.Message(name, message_id=name, transaction=True)
            world.sent.append(name)
            world.client.send(world.topic, half)
            caught.wait()
        found = world.taken()
        assert [each.message_id for each in found] == [name]
        world.ack(*found)
    what = "a check and the end" if kind == REQUEST else "the end of a checked transaction and its answer"
    kept(world, record, what, rounds, checks=asked.total())
