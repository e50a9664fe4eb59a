"""Both protocols over two engines, the embedded one and a stub (tests/engine/stub.py): the seam is all that they need.

Tests with the fixture `shop` run on both, as do those of other files with `either_shop` (sending/, delivering/); those
with `second` show what the stub lacks, and its handles.
"""

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest

import popmq
from popmq_cli.commands import popmq as command_line
from popmq_proto.rocketmq import definition_pb2 as v2pb
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.contract.capabilities import CAPABILITIES
from popmq_server.contract.promises import PROMISES
from popmq_server.embedded_broker import EmbeddedBroker
from tests.engine.stub import HAS, WEAKER
from tests.wire.rocketmq.v2 import V2, message, resource
from tests.wire.served import Served
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, bodies, refusal

SECOND = 1_000


@pytest.fixture
def shop(either_shop: Stubs) -> Stubs:
    return either_shop


@pytest.fixture
def v2(shop: Stubs, engine: EmbeddedBroker | Served) -> Iterator[V2]:
    with V2(engine.endpoint) as client:
        yield client


@pytest.fixture
def stub(second: Served) -> Iterator[Stubs]:
    with Stubs(second.endpoint) as stubs:
        stubs.create_topic(queues=1)
        stubs.create_group()
        yield stubs


@pytest.fixture
def stub_v2(stub: Stubs, second: Served) -> Iterator[V2]:
    with V2(second.endpoint) as client:
        yield client


def test_a_message_is_sent_popped_released_and_acked(shop: Stubs, clock: FakeClock) -> None:
    assert [result.offset for result in shop.send(b"a", b"b")] == [0, 1]
    first, second = shop.pop(invisible_ms=60 * SECOND).deliveries
    assert [(one.message.body, one.attempt) for one in (first, second)] == [(b"a", 1), (b"b", 1)]
    assert bodies(shop.pop()) == []
    assert not shop.change(second.handle, release=pb.Release(delay_ms=0)).HasField("error")
    assert bodies(shop.pop(format=pb.FORMAT_ROWS)) == [b"b"]
    assert shop.ack(first.handle, second.handle, "no handle") == ["", "HANDLE_LAPSED", "INVALID_HANDLE"]
    assert shop.ack(first.handle) == ["HANDLE_LAPSED"]


@pytest.mark.mechanism("S1.10", "I.03", "S1.13", "D.30")
def test_a_lease_ends_at_its_deadline_or_that_of_its_renewal(shop: Stubs, clock: FakeClock) -> None:
    shop.send(b"a", b"b")
    left, kept = shop.pop(invisible_ms=60 * SECOND).deliveries
    renewed = shop.change(kept.handle, extend=pb.Extend(invisible_ms=120 * SECOND))
    assert renewed.visible_ms == clock.now_ms() + 120 * SECOND
    clock.advance(100 * SECOND)
    (again,) = shop.pop().deliveries
    assert (again.message.body, again.attempt) == (b"a", 2)
    assert shop.ack(left.handle, renewed.handle or kept.handle, again.handle) == ["HANDLE_LAPSED", "", ""]
    clock.advance(600 * SECOND)
    assert bodies(shop.pop()) == []


def test_the_numbers_of_a_group_in_a_topic_exist_before_its_first_read(shop: Stubs) -> None:
    shop.send(b"a")
    assert shop.counted() == {"topic": TOPIC, "group": GROUP}


@pytest.mark.parametrize("form", [pb.FORMAT_ROWS, pb.FORMAT_COLUMNS])
def test_each_form_of_an_answer_has_handles_that_ack(shop: Stubs, form: pb.Format) -> None:
    shop.send(b"a", b"b")
    answer = shop.pop(format=form)
    handles = answer.columns.handle or [one.handle for one in answer.deliveries]
    assert shop.ack(*handles) == ["", ""]
    assert bodies(shop.pop()) == []


def test_a_handle_of_one_group_does_not_ack_for_another(shop: Stubs) -> None:
    shop.create_group("other")
    shop.send(b"a")
    (mine,) = shop.pop().deliveries
    assert bodies(shop.pop(group="other")) == [b"a"]
    assert shop.ack(mine.handle, group="other") == ["INVALID_HANDLE"]
    assert shop.ack(mine.handle) == [""]


def test_a_renewal_of_the_second_engine_answers_another_handle(stub: Stubs, clock: FakeClock) -> None:
    shop = stub
    assert [result.offset for result in shop.send(b"a", b"b")] == [0, 1]
    first, second = shop.pop(invisible_ms=60 * SECOND).deliveries
    assert (first.message.body, first.attempt, len(first.handle)) == (b"a", 1, len("stub-delivery:1"))
    assert bodies(shop.pop()) == []
    renewed = shop.change(first.handle, extend=pb.Extend(invisible_ms=120 * SECOND))
    assert renewed.visible_ms == clock.now_ms() + 120 * SECOND
    assert renewed.handle not in ("", first.handle)
    assert not shop.change(second.handle, release=pb.Release(delay_ms=0)).HasField("error")
    assert bodies(shop.pop(format=pb.FORMAT_ROWS)) == [b"b"]
    clock.advance(100 * SECOND)
    assert shop.ack(first.handle) == ["HANDLE_LAPSED"], "the renewal gave it another one"
    assert shop.ack(renewed.handle, second.handle, "no handle") == ["", "HANDLE_LAPSED", "INVALID_HANDLE"]
    assert shop.ack(renewed.handle) == ["HANDLE_LAPSED"]
    (again,) = shop.pop(format=pb.FORMAT_COLUMNS).columns.handle
    assert shop.ack(again) == [""]
    assert bodies(shop.pop()) == []


def test_names_are_the_engines_to_refuse(shop: Stubs) -> None:
    assert refusal(shop.broker.Pop, pb.PopRequest(topic="nowhere", group=GROUP)).code == "TOPIC_NOT_FOUND"
    assert refusal(shop.broker.Ack, pb.AckRequest(group="nobody", handles=["h"])).code == "GROUP_NOT_FOUND"


def test_the_queues_of_a_client_are_those_of_the_engine(stub: Stubs) -> None:
    asked = pb.QueryAssignmentRequest(topic=TOPIC, group=GROUP, client_id="c")
    answer = stub.broker.QueryAssignment(asked, timeout=CALL_S)
    assert (answer.known, answer.all) == (True, True)


def test_a_search_is_one_call_of_the_engine_however_it_searches(shop: Stubs) -> None:
    messages = [pb.Message(body=b"%d" % number, keys=["k"]) for number in range(5)]
    shop.broker.Send(pb.SendRequest(topic=TOPIC, messages=[*messages, pb.Message(body=b"other")]), timeout=CALL_S)
    peeked = shop.broker.Peek(pb.PeekRequest(topic=TOPIC, group=GROUP, max_messages=2), timeout=CALL_S)
    assert [delivery.message.body for delivery in peeked.deliveries] == [b"0", b"1"]
    found = shop.admin.LookUp(pb.LookUpRequest(topic=TOPIC, key="k", max_messages=3), timeout=CALL_S)
    assert ([delivery.message.body for delivery in found.deliveries], found.more) == ([b"4", b"3", b"2"], True)


def test_a_call_that_the_second_engine_lacks_is_refused_with_an_alternative(stub: Stubs) -> None:
    token = pb.Token(owner="o", generation=1, epoch=1)
    snooze = pb.InvisibleTimeChange(handle="h", release=pb.Release(snooze=True))
    snoozing = pb.ChangeInvisibleTimeRequest(group=GROUP, changes=[snooze])
    for call, request, name in (
        (stub.broker.AttachOwner, pb.AttachOwnerRequest(group=GROUP, owner="o", lease_ms=60 * SECOND), "owners"),
        (stub.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP, token=token), "owners"),
        (stub.broker.Pull, pb.PullRequest(topic=TOPIC, group=GROUP), "pull"),
        (stub.admin.ListLeases, pb.ListLeasesRequest(), "list_leases"),
        (stub.admin.PurgeTopic, pb.PurgeTopicRequest(name=TOPIC), "purge"),
        (stub.admin.Why, pb.WhyRequest(message_id="m"), "why"),
        (stub.admin.RedriveDeadLetters, pb.RedriveDeadLettersRequest(group=GROUP), "redrive"),
        (stub.broker.ChangeInvisibleTime, snoozing, "snooze"),
        (stub.admin.UpdateGroup, pb.UpdateGroupRequest(group=pb.Group(name=GROUP, snoozes_max=5)), "snooze"),
    ):
        refused = refusal(call, request)
        assert (refused.code, refused.info.action) == ("UNSUPPORTED", CAPABILITIES[name].instead)


def test_ping_and_client_info_name_what_the_engine_lacks_and_where_it_promises_less(
    second: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    with popmq.Client(second.endpoint) as client:
        info = client.info()
    lacking = {name: each.instead for name, each in CAPABILITIES.items() if name not in HAS}
    assert (info.engine, info.lacking, info.weaker) == ("stub", lacking, WEAKER)
    assert WEAKER.keys() <= PROMISES.keys()
    with pytest.raises(SystemExit):
        command_line(["ping", "--endpoint", second.endpoint], prog_name="popmq")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("engine stub")
    assert f"  without purge; instead: {CAPABILITIES['purge'].instead}" in lines
    assert f"  weaker attempt_ids: {WEAKER['attempt_ids']}" in lines
    with pytest.raises(SystemExit):
        command_line(["ping", "--endpoint", second.endpoint, "--json"], prog_name="popmq")
    told = json.loads(capsys.readouterr().out)
    assert (told["lacking"], told["weaker"]) == (lacking, WEAKER)


def test_an_official_client_finds_sends_receives_and_acks(v2: V2) -> None:
    route = v2.call("QueryRoute", topic=resource(TOPIC), endpoints=v2pb.Endpoints())
    assert [queue.id for queue in route.message_queues] == [0]
    assert v2.send(message(b"a")).status.code == v2pb.OK
    (got,) = v2.receive().messages
    assert (got.body, got.system_properties.delivery_attempt) == (b"a", 1)
    answer = v2.ack(got)
    assert (answer.status.code, answer.entries[0].status.code) == (v2pb.OK, v2pb.OK)
    assert answer.entries[0].receipt_handle == got.system_properties.receipt_handle != ""
    assert v2.receive().messages == []


def test_an_official_client_goes_on_with_the_handle_of_the_answer(stub_v2: V2) -> None:
    assert stub_v2.send(message(b"a")).status.code == v2pb.OK
    (got,) = stub_v2.receive().messages
    handle = got.system_properties.receipt_handle
    asked = {"topic": resource(TOPIC), "group": resource(GROUP), "message_id": got.system_properties.message_id}
    asked["invisible_duration"] = timedelta(seconds=60)
    first = stub_v2.call("ChangeInvisibleDuration", receipt_handle=handle, **asked)
    assert first.receipt_handle not in ("", handle)
    again = stub_v2.call("ChangeInvisibleDuration", receipt_handle=first.receipt_handle, **asked)
    assert (again.status.code, again.receipt_handle != first.receipt_handle) == (v2pb.OK, True)


@pytest.mark.parametrize("how", ["guard", "client"])
def test_the_sdk_settles_with_the_handle_of_the_latest_renewal(
    stub: Stubs, second: Served, clock: FakeClock, how: str
) -> None:
    stub.send(b"a")
    with popmq.Client(second.endpoint) as client:
        (delivery,) = client.pop(TOPIC, GROUP)
        for _ in range(2):
            assert client.extend(delivery, "2m").handle == delivery.current_handle != delivery.handle
        if how == "client":
            client.ack(delivery)
        else:
            delivery.ack()
    clock.advance(600 * SECOND)
    assert bodies(stub.pop()) == []


def test_an_official_client_learns_what_the_engine_lacks(stub_v2: V2) -> None:
    queue = v2pb.MessageQueue(topic=resource(TOPIC), id=0)
    recalled = stub_v2.call("EndTransaction", topic=resource(TOPIC), transaction_id="t", resolution=v2pb.COMMIT)
    assert recalled.status.code == v2pb.NOT_IMPLEMENTED
    assert CAPABILITIES["transactions"].instead in recalled.status.message
    assert stub_v2.code("GetOffset", group=resource(GROUP), message_queue=queue) == "NOT_IMPLEMENTED"
