"""Requests for the sends of one turn of the event loop."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.errors import BadFormat
from popmq_remoting.messages import batch, properties
from popmq_remoting.messages.stored import read_all
from popmq_remoting.requests.sending import SendOutcome, SendTarget
from popmq_server.cluster.messages.from_broker import message_bytes
from popmq_server.cluster.messages.to_broker import BrokerMessage
from popmq_server.cluster.sending import gathering
from tests.remoting.writers import stored_message

TARGET = SendTarget("orders", "orders", 2, "broker-a")


def message(name: str, size: int = 5, born_ms: int = 1, *, plain: bool = True) -> BrokerMessage:
    own = {"UNIQ_KEY": name}
    return BrokerMessage(b"x" * size, own, properties.write(own), 0, born_ms, plain)


sends = st.lists(
    st.builds(message, st.just("id"), st.integers(1, 400), st.integers(1, 3), plain=st.booleans()), max_size=30
)


@given(sends)
def test_each_message_is_in_one_request_in_order_and_within_the_limit(asked: list[BrokerMessage]) -> None:
    found = gathering.planned(asked, 1_000)
    assert [member for each in found for member in each.members] == [*range(len(asked))]
    for each in found:
        assert each.messages == [asked[member] for member in each.members]
        if len(each.members) > 1:
            assert all(one.is_plain for one in each.messages)
            assert batch.size_of(each.entries) <= 1_000


@given(sends)
def test_no_two_requests_that_follow_each_other_would_fit_into_one(asked: list[BrokerMessage]) -> None:
    found = gathering.planned(asked, 1_000)
    for one, other in itertools.pairwise(found):
        if one.messages[0].is_plain and other.messages[0].is_plain:
            (following,) = gathering.planned([*one.messages, other.messages[0]], 1 << 20)
            assert batch.size_of(following.entries) > 1_000


def test_callers_of_one_turn_share_a_request_and_each_has_its_own_place() -> None:
    (found,) = gathering.planned([message(str(number)) for number in range(64)])
    request = found.request(TARGET)
    assert (request.code, request.fields["m"], request.fields["e"], request.fields["n"]) == (
        320,
        "true",
        "2",
        "broker-a",
    )
    outcome = SendOutcome(0, ["id"] * 64, 2, 100, "", "")
    found.check(outcome)


def test_one_message_alone_is_sent_as_one() -> None:
    (found,) = gathering.planned([message("id", born_ms=7)])
    request = found.request(TARGET)
    assert (request.code, request.fields["m"], request.fields["g"]) == (310, "false", "7")
    found.check(SendOutcome(0, ["id"], 2, 100, "", ""))


def test_a_message_with_another_time_of_birth_than_its_request_keeps_it() -> None:
    (found,) = gathering.planned([message("a", born_ms=7), message("b", born_ms=8)])
    assert found.request(TARGET).fields["g"] == "7"
    assert [properties.read(text) for _, text in found.entries] == [
        {"UNIQ_KEY": "a"},
        {"UNIQ_KEY": "b", "__popmq_born": "8"},
    ]


def test_a_message_of_a_batch_is_delivered_with_its_own_time_of_birth_and_no_trace_of_the_batch() -> None:
    (found,) = gathering.planned([message("a", born_ms=7), message("b", born_ms=8)])
    for (body, text), born_ms in zip(found.entries, (7, 8), strict=True):
        (stored,) = read_all(stored_message(body=body, properties=text, born_ms=7))
        shown = pb.Message.FromString(message_bytes(stored, properties.read(stored.properties)))
        assert (shown.born_ms, dict(shown.properties)) == (born_ms, {})


def test_what_a_batch_may_not_have_is_sent_alone_between_the_others() -> None:
    asked = [message(name, plain=name != "c") for name in "abcde"]
    assert [[*each.members] for each in gathering.planned(asked)] == [[0, 1], [2], [3, 4]]


def test_a_message_above_the_limit_is_sent_alone_for_its_broker_to_refuse() -> None:
    asked = [message("a"), message("b", 5 << 20), message("c")]
    assert [[*each.members] for each in gathering.planned(asked)] == [[0], [1], [2]]


def test_an_answer_with_another_number_of_ids_is_not_believed() -> None:
    (found,) = gathering.planned([message("a"), message("b")])
    with pytest.raises(BadFormat, match="1 ids for 2 messages"):
        found.check(SendOutcome(0, ["id"], 2, 100, "", ""))
