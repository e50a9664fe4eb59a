"""Owners and sealed tokens on the wire: the same set until it is acked, whatever happens in between."""

from pathlib import Path
from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded_broker import EmbeddedBroker
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, bodies, handles

OWNER = "query"


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [f"{number:03}".encode() for number in range(start, start + count)]


def seal(
    stubs: Stubs, generation: int, epoch: int = 1, part: int = 0, chunk: int = 0, share: int = 0, **fields: Any
) -> pb.PopResponse:
    """A Pop with a token."""
    upto = fields.pop("upto", None)
    token = pb.Token(owner=OWNER, generation=generation, epoch=epoch, part=part, chunk=chunk, share=share, upto=upto)
    return stubs.pop(token=token, **fields)


def ack_up_to(stubs: Stubs, generation: int, epoch: int) -> pb.AckUpToResponse:
    request = pb.AckUpToRequest(group=GROUP, owner=OWNER, generation=generation, epoch=epoch)
    answer: pb.AckUpToResponse = stubs.broker.AckUpTo(request, timeout=CALL_S)
    return answer


def listed(stubs: Stubs) -> pb.OwnerStats:
    (found,) = stubs.admin.ListOwners(pb.ListOwnersRequest(group=GROUP), timeout=CALL_S).owners
    assert isinstance(found, pb.OwnerStats)
    return found


def available(stubs: Stubs, **fields: Any) -> pb.WaitAvailableResponse:
    request = pb.WaitAvailableRequest(topic=TOPIC, group=GROUP, **fields)
    answer: pb.WaitAvailableResponse = stubs.broker.WaitAvailable(request, timeout=CALL_S)
    return answer


@pytest.fixture
def generation(shop: Stubs) -> int:
    return shop.attach(OWNER).generation


# ── AttachOwner ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_attaching_with_a_topic_fixes_the_start_and_tells_the_queues(shop: Stubs) -> None:
    shop.send(*numbers(2))
    latest = pb.StartPosition(**{"from": pb.LATEST})
    attached = shop.attach(OWNER, topic=TOPIC, start=latest)
    assert attached.queues == 1
    shop.send(*numbers(1, 2))
    earliest = pb.StartPosition(**{"from": pb.EARLIEST})
    again = shop.attach(OWNER, topic=TOPIC, start=earliest)
    assert bodies(seal(shop, again.generation)) == numbers(1, 2), "a start is fixed once"


def test_attaching_tells_the_acked_epoch_across_a_restart(folder: Path, clock: FakeClock) -> None:
    with EmbeddedBroker(folder, clock=clock, sync="none") as broker, Stubs(broker.endpoint) as stubs:
        stubs.create_topic(queues=1)
        stubs.create_group()
        stubs.send(*numbers(4))
        generation = stubs.attach(OWNER).generation
        seal(stubs, generation, epoch=7, max_messages=2)
        sealed = seal(stubs, generation, epoch=8)
        ack_up_to(stubs, generation, 7)
    with EmbeddedBroker(folder, clock=clock, sync="none") as broker, Stubs(broker.endpoint) as stubs:
        attached = stubs.attach(OWNER)
        assert (attached.generation, attached.acked_epoch) == (generation + 1, 7)
        again = seal(stubs, attached.generation, epoch=8)
        assert again.replay
        assert list(again.deliveries) == list(sealed.deliveries), "the same rows, handles and attempts"


# ── Pop with a token ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_share_bounds_all_chunks_of_its_part(shop: Stubs, generation: int) -> None:
    shop.send(*numbers(10))
    answers = [seal(shop, generation, chunk=chunk, share=5, max_messages=2) for chunk in range(3)]
    assert [len(answer.deliveries) for answer in answers] == [2, 2, 1]
    assert [answer.sealed.end for answer in answers] == [False, False, True]
    assert len(seal(shop, generation, part=1, share=5).deliveries) == 5


def test_upto_bounds_a_read_and_leaves_later_messages(shop: Stubs, generation: int) -> None:
    shop.send(*numbers(3))
    upto = available(shop).upto
    shop.send(*numbers(3, 3))
    sealed = seal(shop, generation, upto=upto)
    assert (bodies(sealed), sealed.sealed.end) == (numbers(3), True)
    assert available(shop, upto=upto).ready == 0
    assert available(shop).ready == 3


def test_a_position_beyond_the_end_bounds_nothing(shop: Stubs, generation: int) -> None:
    shop.send(*numbers(3))
    far = pb.Position(queues={0: 2**63 - 1, 99: 5}, retry=2**64 - 1)
    assert available(shop, upto=far).ready == 3
    assert bodies(seal(shop, generation, upto=far)) == numbers(3)


# ── RenewOwner, AckUpTo, ReleaseOwner ────────────────────────────────────────────────────────────────────────────────


def test_owners_are_listed_with_what_they_hold(shop: Stubs, generation: int, clock: FakeClock) -> None:
    shop.send(*numbers(4))
    seal(shop, generation, epoch=1, max_messages=1)
    seal(shop, generation, epoch=2, max_messages=2)
    ack_up_to(shop, generation, 1)
    until_ms = clock.now_ms() + 60_000
    expected = pb.OwnerStats(
        group=GROUP,
        owner=OWNER,
        generation=generation,
        acked_epoch=1,
        lease_until_ms=until_ms,
        tokens=1,
        messages=2,
        last_seen_ms=clock.now_ms(),
    )
    assert listed(shop) == expected
    assert shop.stats().owners == 1
    clock.advance(60_000)
    assert (listed(shop).released, listed(shop).tokens) == (True, 1)


# ── WaitAvailable ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.promise("statistics")
@pytest.mark.slow
def test_available_counts_unread_and_retry_and_takes_no_lease(stubs: Stubs) -> None:
    stubs.create_topic(queues=2)
    stubs.create_group()
    for number in range(5):
        stubs.send(str(number).encode())
    first, second, _ = handles(stubs.pop(max_messages=3))
    stubs.change(first, release=pb.Release(delay_ms=0))
    stubs.change(second, release=pb.Release(delay_ms=60_000))
    answer = available(stubs, min_ready=3)
    assert answer.ready == 2 + 1
    assert sum(answer.upto.queues.values()) == 5
    assert (answer.stats.ready, answer.stats.retry, answer.stats.backoff, answer.stats.in_flight) == (2, 1, 1, 1)
    assert len(stubs.pop().deliveries) == 3
