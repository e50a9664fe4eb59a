"""Layouts: numbers of queues that never change their meaning, and message groups over them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popmq_remoting import RemotingError, Response
from popmq_remoting.errors import BadFormat, Unreachable
from popmq_server.cluster import layout
from popmq_server.cluster.layout import Agreed, Layout, QueuePlace
from popmq_server.cluster.sending import message_groups
from popmq_server.errors import Refused

brokers = st.text("abc-_.019", min_size=1, max_size=12)
routes = st.dictionaries(brokers, st.integers(1, 8), min_size=1, max_size=4)


@given(st.lists(routes, min_size=1, max_size=5))
def test_a_layout_that_grew_keeps_each_number_and_is_read_as_it_was_written(steps: list[dict[str, int]]) -> None:
    found = layout.of_route(steps[0])
    for route in steps[1:]:
        grown = found.appended(route)
        assert found.begins(grown)
        found = grown
    assert layout.read(found.text()) == found
    known = {(broker, id) for route in steps for broker, count in route.items() for id in range(count)}
    assert {*found.places} == known
    assert len(found) == len(known)
    for number, place in enumerate(found.places):
        assert found.number(*place) == number
        assert found.place("orders", number) == place


def test_the_first_layout_has_the_order_of_the_official_proxy() -> None:
    found = layout.of_route({"broker-b": 2, "broker-a": 1})
    assert found.places == (QueuePlace("broker-a", 0), QueuePlace("broker-b", 0), QueuePlace("broker-b", 1))
    assert found.text() == "broker-a:1;broker-b:2"


def test_a_broker_that_grew_has_its_new_queues_behind_all_others() -> None:
    grown = layout.of_route({"a": 4, "b": 4}).appended({"a": 6, "b": 4})
    assert grown.text() == "a:4;b:4;a:2"
    assert (grown.number("a", 5), grown.number("b", 0), grown.number("b", 9)) == (9, 4, None)


def test_a_broker_that_is_away_keeps_its_queues() -> None:
    found = layout.of_route({"a": 2, "b": 2})
    assert found.appended({"b": 2}) is found


def test_a_queue_that_the_topic_does_not_have_is_refused() -> None:
    with pytest.raises(Refused, match="has 2 queues, no queue 2") as refused:
        layout.of_route({"a": 2}).place("orders", 2)
    assert refused.value.code == "INVALID_FIELD"


@pytest.mark.parametrize(
    "text", ["", "a", "a:", ":4", "a:0", "a:-1", "a:4;", "a:x", "a:1_0", "a:²", "a:99999", "a:123456"]
)
def test_a_damaged_layout_is_not_read(text: str) -> None:
    with pytest.raises(BadFormat):
        layout.read(text)


def test_name_servers_that_say_the_same_agree_in_any_spelling() -> None:
    assert layout.agreed("orders", ["a:4;b:2", "a:2;a:2;b:2"]) == Agreed(layout.read("a:4;b:2"), True)
    assert layout.agreed("orders", [None, "", None]) is None
    assert layout.agreed("orders", []) is None


def test_the_longer_of_two_layouts_with_one_beginning_counts_and_is_to_be_written_everywhere() -> None:
    assert layout.agreed("orders", ["a:4", "a:4;b:2"]) == Agreed(layout.read("a:4;b:2"), False)
    assert layout.agreed("orders", ["a:4", None]) == Agreed(layout.read("a:4"), False)


@pytest.mark.parametrize("texts", [["a:4;b:4", "b:4;a:4"], ["a:4", "a:3;b:1"], ["a:4", "damaged"]])
def test_layouts_that_contradict_each_other_are_not_guessed_but_mended_by_the_operator(texts: list[str]) -> None:
    with pytest.raises(Refused) as refused:
        layout.agreed("shop.orders", texts)
    assert (refused.value.code, refused.value.retryable) == ("UNAVAILABLE", True)
    assert refused.value.action.endswith("popmq cluster layout shop.orders --set LAYOUT")
    assert all(text in refused.value.message for text in texts)


def test_name_servers_that_do_not_answer_are_left_out_and_one_has_to() -> None:
    answers: dict[str, Response | RemotingError] = {
        "n0:9876": Response(0, fields={"value": "a:4"}),
        "n1:9876": Response(22),
        "n2:9876": Unreachable("no connection"),
        "n3:9876": Response(1, "starting"),
    }
    assert layout.kept("orders", answers) == ["a:4", None]
    with pytest.raises(Refused, match="n2:9876, n3:9876") as refused:
        layout.kept("orders", {address: answers[address] for address in ("n2:9876", "n3:9876")})
    assert refused.value.code == "UNAVAILABLE"


def test_a_fifo_topic_without_a_layout_gets_no_other_order_but_the_command_that_mends_it() -> None:
    refused = layout.missing("shop.orders")
    assert (refused.code, refused.retryable) == ("UNAVAILABLE", True)
    assert refused.action.endswith("popmq cluster layout shop.orders --set LAYOUT")


@given(st.integers(1, 100), st.lists(brokers, min_size=1, max_size=6, unique=True))
def test_a_new_topic_has_its_queues_in_equal_shares_and_one_at_least_at_each_broker(
    queues: int, names: list[str]
) -> None:
    shares = layout.spread(queues, names)
    assert {*shares} == {*names}
    assert sum(shares.values()) == max(queues, len(names))
    assert max(shares.values()) - min(shares.values()) <= 1
    assert min(shares.values()) >= 1


def test_fifo_topics_have_their_layout_where_java_clients_look_for_it() -> None:
    assert (layout.namespace(True), layout.namespace(False)) == ("ORDER_TOPIC_CONFIG", "POPMQ")


def test_strings_hash_as_in_java() -> None:
    """Known values: the documentation of the algorithm, and the hash of the largest negative number."""
    known = {"": 0, "a": 97, "hello": 99162322, "polygenelubricants": -(1 << 31), "ü": 252, "😀": 1772899}
    assert {text: message_groups.string_hash(text) for text in known} == known


def test_numbers_hash_as_in_guava() -> None:
    """The values that Guava's own test pins, so that proxies, which use it, agree with gateways."""
    golden = [0, 55, 62, 8, 45, 59, 86, 97, 82, 59, 73, 37, 17, 56, 86, 21, 90, 37, 38, 83]
    assert [message_groups.jump_hash(number, 100) for number in range(20)] == golden
    known = {10863919174838991: 6, 2016238256797177309: 3, 1673758223894951030: 5}
    assert {number: message_groups.jump_hash(number, 11) for number in known} == known
    assert [message_groups.jump_hash(number, 100_001) for number in (2, 2201, 2202)] == [80343, 22152, 15018]


@given(st.text(max_size=64), st.integers(1, 64))
def test_a_message_group_has_one_queue_and_moves_only_to_a_new_one(message_group: str, queues: int) -> None:
    before, after = (message_groups.queue_of(message_group, count) for count in (queues, queues + 1))
    assert 0 <= before < queues
    assert after in {before, queues}


def test_layouts_are_equal_by_their_queues() -> None:
    assert {layout.read("a:1;a:1"), layout.read("a:2")} == {Layout([QueuePlace("a", 0), QueuePlace("a", 1)])}
    assert layout.read("a:2") != "a:2"
