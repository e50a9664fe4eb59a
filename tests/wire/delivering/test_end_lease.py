"""EndLease and ListAccessKeys: what an operator does about a client that will not come back, and who may do what."""

from pathlib import Path

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.embedded_broker import EmbeddedBroker
from tests.wire.access.signing import SignedStubs
from tests.wire.parked import Parked
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, bodies, handles, refusal

KEYS = """
[root]
secret = "secret-of-root"
allow = ["*"]
[rotating]
secret = ["secret-of-rotating", "secret-of-before"]
allow = ["send:orders*", "receive:orders/billing", "receive:*/audit", "receive"]
expires = 2099-01-01T00:00:00Z
"""


def lease_of(stubs: Stubs) -> int:
    (lease,) = stubs.admin.ListLeases(pb.ListLeasesRequest(group=GROUP, topic=TOPIC), timeout=CALL_S).leases
    return int(lease.checkpoint_id)


def end(stubs: Stubs, checkpoint_id: int) -> int:
    request = pb.EndLeaseRequest(group=GROUP, checkpoint_id=checkpoint_id)
    return int(stubs.admin.EndLease(request, timeout=CALL_S).messages)


def test_unfinished_messages_of_an_ended_lease_come_back_at_once_and_their_handles_lapse(
    shop: Stubs, parked: Parked
) -> None:
    shop.send(b"a", b"b", b"c")
    first, *others = handles(shop.pop(max_messages=3))
    shop.ack(first)
    call = shop.pop_later(max_messages=3)
    parked.wait_for(1)
    assert end(shop, lease_of(shop)) == 2
    again = call.result()
    assert (bodies(again), [row.attempt for row in again.deliveries]) == ([b"b", b"c"], [2, 2])
    assert shop.ack(*others) == ["HANDLE_LAPSED"] * 2


def test_a_lease_is_named_by_its_text_or_by_its_older_number(shop: Stubs) -> None:
    shop.send(b"a", b"b")
    shop.pop(max_messages=1)
    shop.pop(max_messages=1)
    (lease, other) = shop.admin.ListLeases(pb.ListLeasesRequest(group=GROUP, topic=TOPIC), timeout=CALL_S).leases
    by_text = pb.EndLeaseRequest(group=GROUP, lease_id=lease.lease_id)
    assert shop.admin.EndLease(by_text, timeout=CALL_S).messages == 1
    assert end(shop, other.checkpoint_id) == 1
    wrong = refusal(shop.admin.EndLease, pb.EndLeaseRequest(group=GROUP, lease_id="of another engine"))
    assert (wrong.code, wrong.info.field) == ("HANDLE_LAPSED", "lease_id")


@pytest.mark.slow
def test_a_message_in_backoff_comes_at_once_when_its_lease_is_ended(shop: Stubs) -> None:
    shop.send(b"a")
    shop.change(handles(shop.pop())[0], release=pb.Release(delay_ms=3_600_000))
    assert end(shop, lease_of(shop)) == 1
    assert bodies(shop.pop(wait_ms=5_000)) == [b"a"]


def test_a_lease_that_is_over_or_an_owners_is_not_ended(shop: Stubs) -> None:
    shop.send(b"a")
    (handle,) = handles(shop.pop())
    checkpoint_id = lease_of(shop)
    shop.ack(handle)
    for place in (checkpoint_id, 12345):
        assert (
            refusal(shop.admin.EndLease, pb.EndLeaseRequest(group=GROUP, checkpoint_id=place)).code == "HANDLE_LAPSED"
        )
    shop.send(b"b")
    generation = shop.attach("query").generation
    shop.pop(token=pb.Token(owner="query", generation=generation, epoch=1))
    owned = pb.EndLeaseRequest(group=GROUP, checkpoint_id=lease_of(shop))
    assert refusal(shop.admin.EndLease, owned).code == "INVALID_FIELD"


@pytest.mark.slow
def test_the_keys_are_listed_without_secrets_to_admin_and_the_own_one_to_others(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.touch(0o600)
    keys.write_text(KEYS)
    with EmbeddedBroker(tmp_path / "data", sync="none", access_keys=keys) as broker:
        with SignedStubs(broker.endpoint, "root", "secret-of-root") as root:
            listed = root.admin.ListAccessKeys(pb.ListAccessKeysRequest(), timeout=CALL_S)
        with SignedStubs(broker.endpoint, "rotating", "secret-of-rotating") as rotating:
            own = rotating.admin.ListAccessKeys(pb.ListAccessKeysRequest(), timeout=CALL_S)
    assert [(key.name, list(key.allow), key.secrets) for key in listed.access_keys] == [
        ("root", ["*"], 1),
        ("rotating", ["send:orders*", "receive:orders/billing", "receive:*/audit", "receive"], 2),
    ]
    assert [key.expires_ms for key in listed.access_keys] == [0, 4_070_908_800_000]
    assert ([key.name for key in own.access_keys], own.caller) == (["rotating"], "rotating")
    assert b"secret-of" not in listed.SerializeToString()


def test_listing_access_keys_of_a_broker_without_keys_is_empty(shop: Stubs) -> None:
    answer = shop.admin.ListAccessKeys(pb.ListAccessKeysRequest(), timeout=CALL_S)
    assert answer == pb.ListAccessKeysResponse()
