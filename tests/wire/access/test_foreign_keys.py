"""What a client cannot do to the clients of other access keys, although its own key allows the call."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from popmq_proto.rocketmq import definition_pb2 as v2pb
from popmq_proto.rocketmq import service_pb2 as v2rpc
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.protocols.access import known_keys
from popmq_server.values.filters import filter as filters
from tests.wire.access.signing import SignedStubs, signed, write_keys
from tests.wire.rocketmq.v2 import CLIENT, V2, Telemetry, resource
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, bodies, refusal

SINK = "job"
PAYMENTS = "payments"
HIGHEST = (1 << 63) - 1
KEYS = {
    "root": ["*"],
    "operator": ["admin"],
    "sender": [f"send:{TOPIC}"],
    "guest": ["send:guests"],
    "reader": [f"receive:{TOPIC}/{GROUP}"],
    "second": [f"receive:{TOPIC}/{GROUP}"],
    "payer": [f"receive:{PAYMENTS}/{GROUP}"],
    "audit": [f"receive:{TOPIC}/audit"],
    "every": [f"receive:{TOPIC}"],
    "some": [f"receive:{TOPIC}/gr*"],
    "named": [f"receive:{TOPIC}/group-7"],
}


class Keyed:
    """A broker with access keys, and a client for each."""

    def __init__(self, stack: contextlib.ExitStack, folder: Path) -> None:
        self.keys = folder / "keys.toml"
        write_keys(self.keys, KEYS)
        self.clock = FakeClock()
        broker = EmbeddedBroker(folder / "data", clock=self.clock, sync="none", access_keys=self.keys)
        self.endpoint = stack.enter_context(broker).endpoint
        self.of: dict[str, Stubs] = {name: stack.enter_context(SignedStubs(self.endpoint, name)) for name in KEYS}
        self.root = self.of["root"]
        for topic in (TOPIC, PAYMENTS, "guests"):
            self.root.create_topic(topic, queues=1)
        for group in (GROUP, "audit"):
            self.root.create_group(group)


@pytest.fixture
def keyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keyed]:
    """The file of keys is looked at before each call."""
    monkeypatch.setattr(known_keys, "LOOK_EVERY_S", 0.0)
    with contextlib.ExitStack() as stack:
        yield Keyed(stack, tmp_path)


# ── Sinks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def staging(stage_id: str, batch: int, topic: str = TOPIC) -> pb.StageRequest:
    messages = [pb.Message(body=b"x")]
    return pb.StageRequest(topic=topic, messages=messages, sink=SINK, batch=batch, stage_id=stage_id)


def committing(batch: int, *stage_ids: str) -> pb.CommitBatchRequest:
    names = [pb.StageName(stage_id=stage_id, topic=TOPIC, messages=1) for stage_id in stage_ids]
    return pb.CommitBatchRequest(sink=SINK, batch=batch, stages=names)


def test_a_sink_belongs_to_the_access_key_that_stages_for_it_first(keyed: Keyed) -> None:
    sender, guest = keyed.of["sender"].broker, keyed.of["guest"].broker
    sender.Stage(staging("a", 7), timeout=CALL_S)
    refused = refusal(guest.CommitBatch, committing(HIGHEST))
    assert (refused.code, refused.info.field) == ("PERMISSION_DENIED", "sink")
    assert refusal(guest.Stage, staging("b", 7, "guests")).code == "PERMISSION_DENIED"
    dropped = pb.DropStagesRequest(sink=SINK, stages=[pb.StageName(stage_id="a", topic="guests")])
    assert refusal(guest.DropStages, dropped).code == "PERMISSION_DENIED"
    assert not sender.CommitBatch(committing(7, "a"), timeout=CALL_S).duplicate


def test_a_sink_with_a_committed_batch_takes_none_of_another_access_key(keyed: Keyed) -> None:
    sender, guest = keyed.of["sender"].broker, keyed.of["guest"].broker
    sender.CommitBatch(committing(7), timeout=CALL_S)
    assert refusal(guest.CommitBatch, committing(HIGHEST)).code == "PERMISSION_DENIED"
    sender.Stage(staging("a", 8), timeout=CALL_S)
    assert not sender.CommitBatch(committing(8, "a"), timeout=CALL_S).duplicate


def test_a_key_whose_sink_name_is_taken_is_refused_and_loses_no_message_silently(keyed: Keyed) -> None:
    keyed.of["guest"].broker.CommitBatch(committing(HIGHEST), timeout=CALL_S)
    assert refusal(keyed.of["sender"].broker.Stage, staging("a", 1)).code == "PERMISSION_DENIED"
    assert refusal(keyed.of["sender"].broker.CommitBatch, committing(1)).code == "PERMISSION_DENIED"


def test_a_key_with_admin_uses_the_sink_of_another_key_and_leaves_it_to_that_key(keyed: Keyed) -> None:
    sender = keyed.of["sender"].broker
    sender.Stage(staging("a", 7), timeout=CALL_S)
    keyed.root.broker.CommitBatch(committing(7, "a"), timeout=CALL_S)
    assert sender.CommitBatch(committing(7, "a"), timeout=CALL_S).duplicate
    assert refusal(keyed.of["guest"].broker.CommitBatch, committing(8)).code == "PERMISSION_DENIED"


# ── Owners, leases ───────────────────────────────────────────────────────────────────────────────────────────────────


def disturbing(generation: int) -> dict[str, Any]:
    """Requests of a key for TOPIC about owner "o" of its group, which reads PAYMENTS."""
    owner: dict[str, Any] = {"group": GROUP, "owner": "o"}
    token = pb.Token(owner="o", generation=generation, epoch=9)
    return {
        "AckUpTo": pb.AckUpToRequest(**owner, generation=generation, epoch=HIGHEST),
        "RenewOwner": pb.RenewOwnerRequest(**owner, generation=generation, lease_ms=1_000),
        "ReleaseOwner": pb.ReleaseOwnerRequest(**owner),
        "AttachOwner": pb.AttachOwnerRequest(**owner, lease_ms=1_000, topic=TOPIC),
        "Pop": pb.PopRequest(topic=TOPIC, group=GROUP, token=token, max_messages=1),
    }


@pytest.mark.parametrize("holds", ["nothing yet", "messages", "messages of a topic that it was not attached for"])
def test_an_owner_of_a_topic_takes_no_command_of_a_key_for_another_topic_of_its_group(keyed: Keyed, holds: str) -> None:
    keyed.root.send(b"1", topic=PAYMENTS)
    payer = keyed.of["payer"]
    attached_for = "" if holds.endswith("attached for") else PAYMENTS
    generation = payer.attach("o", topic=attached_for).generation
    token = pb.Token(owner="o", generation=generation, epoch=1)
    if holds != "nothing yet":
        payer.pop(PAYMENTS, token=token)
    for name, request in disturbing(generation).items():
        refused = refusal(getattr(keyed.of["reader"].broker, name), request)
        assert (refused.code, refused.info.field[-5:]) == ("PERMISSION_DENIED", "owner"), name
    assert bodies(payer.pop(PAYMENTS, token=token)) == [b"1"]
    done = pb.AckUpToRequest(group=GROUP, owner="o", generation=generation, epoch=1)
    assert payer.broker.AckUpTo(done, timeout=CALL_S).acked == 1


def test_a_lease_of_another_topic_is_neither_listed_nor_ended(keyed: Keyed) -> None:
    keyed.root.send(b"1", topic=PAYMENTS)
    keyed.of["payer"].pop(PAYMENTS, invisible_ms=60_000)
    listing = pb.ListLeasesRequest(group=GROUP)
    (lease,) = keyed.of["operator"].admin.ListLeases(listing, timeout=CALL_S).leases
    assert list(keyed.of["payer"].admin.ListLeases(listing, timeout=CALL_S).leases) == [lease]
    hidden = keyed.of["reader"].admin.ListLeases(listing, timeout=CALL_S)
    assert (list(hidden.leases), hidden.total) == ([], 0)
    end = pb.EndLeaseRequest(group=GROUP, lease_id=lease.lease_id)
    assert refusal(keyed.of["reader"].admin.EndLease, end).code == "PERMISSION_DENIED"
    assert keyed.of["payer"].admin.EndLease(end, timeout=CALL_S).messages == 1


def test_owners_are_listed_to_keys_that_may_receive_all_of_their_topics(keyed: Keyed) -> None:
    keyed.of["payer"].attach("o", topic=PAYMENTS)
    listing = pb.ListOwnersRequest(group=GROUP)

    def listed(name: str) -> list[str]:
        return [row.owner for row in keyed.of[name].admin.ListOwners(listing, timeout=CALL_S).owners]

    assert (listed("payer"), listed("operator"), listed("reader")) == (["o"], ["o"], [])


def test_the_life_of_a_message_shows_a_key_only_the_groups_that_it_may_receive_with(keyed: Keyed) -> None:
    sent = pb.SendRequest(topic=TOPIC, messages=[pb.Message(body=b"1", message_id="m")])
    keyed.root.broker.Send(sent, timeout=CALL_S)
    for name, group in (("reader", GROUP), ("audit", "audit")):
        keyed.of[name].pop(TOPIC, group=group, invisible_ms=60_000)

    def seen(name: str) -> tuple[list[str], list[str]]:
        admin = keyed.of[name].admin
        lives = admin.Why(pb.WhyRequest(message_id="m", topic=TOPIC), timeout=CALL_S).lives
        leases = admin.ListLeases(pb.ListLeasesRequest(topic=TOPIC), timeout=CALL_S).leases
        return sorted(row.group for row in lives[0].groups), sorted(row.group for row in leases)

    assert seen("audit") == (["audit"], ["audit"])
    assert seen("operator") == (["audit", GROUP], ["audit", GROUP])


# ── Streams of official clients ──────────────────────────────────────────────────────────────────────────────────────

VERIFY = pb.VerifyMessageRequest(client_id=CLIENT, topic=TOPIC)
ENTRY = v2pb.SubscriptionEntry(topic=resource(TOPIC))
SUBSCRIBES = {"subscription": v2pb.Subscription(group=resource(GROUP), subscriptions=[ENTRY])}
PUBLISHES = {"publishing": v2pb.Publishing(topics=[resource("guests")])}


@contextlib.contextmanager
def listening(keyed: Keyed, name: str, settings: dict[str, Any]) -> Iterator[Telemetry]:
    """The open stream of a client with CLIENT as its id, of this key."""
    (_, date_time), (_, authorization) = signed(name)
    with V2(keyed.endpoint, x_mq_date_time=date_time, authorization=authorization) as v2, v2.telemetry() as telemetry:
        assert telemetry.agree(**settings).status.code == v2pb.OK
        yield telemetry


def answer(telemetry: Telemetry, nonce: str, text: str) -> None:
    result = v2rpc.VerifyMessageResult(nonce=nonce)
    telemetry.say(status=v2pb.Status(code=v2pb.OK, message=text), verify_message_result=result)


def test_a_message_is_verified_by_the_client_whose_key_may_receive_it_not_by_another_with_its_id(keyed: Keyed) -> None:
    keyed.root.send(b"secret")
    operator = keyed.of["operator"].admin
    with listening(keyed, "guest", PUBLISHES) as guest:
        assert refusal(operator.VerifyMessage, VERIFY).code == "CLIENT_NOT_FOUND"
        with listening(keyed, "reader", SUBSCRIBES) as reader:
            pending = operator.VerifyMessage.future(VERIFY, timeout=CALL_S)
            asked = reader.hear().verify_message_command
            assert asked.message.body == b"secret"
            answer(guest, asked.nonce, "forged")
            assert guest.agree(**PUBLISHES).HasField("settings"), "the answer before was read"
            answer(reader, asked.nonce, "true")
            assert pending.result().text == "true"


def test_an_id_of_clients_of_two_keys_that_may_receive_a_message_is_refused(keyed: Keyed) -> None:
    keyed.root.send(b"secret")
    with listening(keyed, "reader", SUBSCRIBES), listening(keyed, "second", SUBSCRIBES):
        refused = refusal(keyed.of["operator"].admin.VerifyMessage, VERIFY)
    assert (refused.code, refused.info.field) == ("INVALID_FIELD", "client_id")


@pytest.mark.parametrize("change", ["removed", "another secret"])
def test_a_stream_whose_key_was_removed_or_got_another_secret_is_sent_no_message_to_verify(
    keyed: Keyed, change: str
) -> None:
    keyed.root.send(b"secret")
    operator = keyed.of["operator"].admin
    with listening(keyed, "reader", SUBSCRIBES):
        kept = {name: allow for name, allow in KEYS.items() if name != "reader" or change != "removed"}
        write_keys(keyed.keys, kept, {"reader": "another secret"})
        assert refusal(operator.VerifyMessage, VERIFY).code == "CLIENT_NOT_FOUND"
        stack = pb.GetClientStackRequest(client_id=CLIENT)
        assert refusal(operator.GetClientStack, stack).code == "CLIENT_NOT_FOUND"


# ── Producers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_request_number_is_used_up_only_by_producers_of_the_same_key(keyed: Keyed) -> None:
    def send(name: str, topic: str, number: int) -> pb.SendResponse:
        messages = [pb.Message(body=b"x")]
        request = pb.SendRequest(topic=topic, messages=messages, producer_id="p", request_number=number)
        answer: pb.SendResponse = keyed.of[name].broker.Send(request, timeout=CALL_S)
        return answer

    send("guest", "guests", 1)
    foreign = send("root", TOPIC, 1)
    answers = [send("sender", TOPIC, number) for number in (1, 1, 2)]
    places = [(answer.duplicate, answer.results[0].offset) for answer in answers]
    assert places == [(False, 1), (True, 1), (False, 2)]
    ids = [answer.results[0].message_id for answer in (foreign, *answers)]
    assert ids[1] == ids[2]
    assert len(set(ids)) == 3, "also in a topic that stores each id once"


# ── Groups ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_owner_creates_a_group_that_its_key_names_and_no_other(keyed: Keyed) -> None:
    request = pb.AttachOwnerRequest(group="group-7", owner="o", lease_ms=60_000, topic=TOPIC, create_group=True)
    for name in ("every", "some"):
        refused = refusal(keyed.of[name].broker.AttachOwner, request)
        assert (refused.code, f'"receive:{TOPIC}/group-7"' in refused.info.action) == ("PERMISSION_DENIED", True)
    assert "group-7" not in {row.name for row in keyed.root.admin.ListGroups(pb.ListGroupsRequest()).groups}
    for name in ("named", "every", "some"):  # the others use a group that exists
        assert keyed.of[name].broker.AttachOwner(request, timeout=CALL_S).generation
    request.group = "group-8"
    assert keyed.root.broker.AttachOwner(request, timeout=CALL_S).generation == 1


# ── Filters ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_filter_of_a_key_that_may_not_receive_is_not_compiled(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(filters, "make", lambda _, text: compiled.append(text))
    broker, sql = keyed.of["guest"].broker, pb.Filter(sql92="a = 1")
    for call, request in (
        (broker.Peek, pb.PeekRequest(topic=TOPIC, group=GROUP, filter=sql)),
        (broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP, filter=sql)),
        (broker.Pull, pb.PullRequest(topic=TOPIC, filter=sql)),
        (keyed.of["guest"].admin.SetFilter, pb.SetFilterRequest(topic=TOPIC, group=GROUP, filter=sql)),
    ):
        refused = refusal(call, request)
        assert (refused.code, f"receive:{TOPIC}/" in refused.info.action) == ("PERMISSION_DENIED", True)
    (_, date_time), (_, authorization) = signed("guest")
    with V2(keyed.endpoint, x_mq_date_time=date_time, authorization=authorization) as v2:
        expression = v2pb.FilterExpression(type=v2pb.SQL, expression="a = 1")
        assert v2.receive(filter_expression=expression).code == v2pb.UNAUTHORIZED
    assert compiled == []
