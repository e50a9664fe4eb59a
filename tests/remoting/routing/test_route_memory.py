"""Which answers of name servers are believed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popmq_remoting.codes import Permission
from popmq_remoting.errors import BadFormat
from popmq_remoting.routing import route_memory
from popmq_remoting.routing.route import BrokerAddresses, Route, TopicQueues, read_cluster, read_route
from popmq_remoting.routing.route_memory import RouteMemory

READ_WRITE = Permission.READ | Permission.WRITE


def route(*names: str, queues: int = 4, replica: bool = False, port: int = 1, perm: Permission = READ_WRITE) -> Route:
    addresses = {0: f"h:{port}"} | ({1: f"h:{port + 1}"} if replica else {})
    return Route(
        {name: TopicQueues(queues, queues, perm) for name in names},
        {name: BrokerAddresses("c", addresses) for name in names},
    )


BOTH = route("a", "b", replica=True)


def memory(known: Route | None = BOTH, draw: float = 0.0) -> RouteMemory:
    made = RouteMemory(lambda: draw)
    made.learn("t", known, 0.0)
    return made


LESS = [
    pytest.param(None, id="no topic"),
    pytest.param(route("a", replica=True), id="one broker of two"),
    pytest.param(route("a", "b"), id="without the replicas"),
    pytest.param(Route(BOTH.queues, {name: BrokerAddresses("c", {1: "h:2"}) for name in "ab"}), id="without masters"),
    pytest.param(route("a", "b", replica=True, queues=2), id="fewer queues"),
    pytest.param(route("a", "b", replica=True, perm=Permission.READ), id="read only"),
]


@pytest.mark.parametrize("less", LESS)
def test_a_route_shrinks_only_when_two_answers_30_s_apart_agree(less: Route | None) -> None:
    known = memory()
    assert known.learn("t", less, 1.0) == BOTH
    assert known.learn("t", less, 30.9) == BOTH
    assert known.learn("t", less, 31.0) == less


@pytest.mark.parametrize("less", LESS)
def test_an_answer_that_knows_all_in_between_begins_the_30_s_anew(less: Route | None) -> None:
    known = memory()
    known.learn("t", less, 1.0)
    assert known.learn("t", BOTH, 20.0) == BOTH
    assert known.learn("t", less, 40.0) == BOTH


def test_two_answers_that_miss_different_things_do_not_agree() -> None:
    known = memory()
    known.learn("t", route("a", replica=True), 1.0)
    assert known.learn("t", route("b", replica=True), 35.0) == BOTH
    assert known.learn("t", route("b", replica=True), 65.0) == route("b", replica=True)


def test_a_restarted_name_server_takes_no_broker_away_for_as_long_as_it_takes() -> None:
    """17 for 23 s, then one broker for 2 s, then all."""
    known = memory()
    answers = [
        (None, 1.0),
        (None, 20.0),
        (route("a", replica=True), 24.0),
        (route("a", replica=True), 25.9),
        (BOTH, 27.0),
    ]
    assert [known.learn("t", answer, now_s) for answer, now_s in answers] == [BOTH] * 5


def test_what_is_new_is_believed_at_once_also_beside_what_is_missing() -> None:
    known = memory(route("a"))
    assert known.learn("t", route("a", "b", queues=8), 1.0) == route("a", "b", queues=8)
    moved = known.learn("t", route("a", queues=8, port=7), 2.0)
    assert moved is not None
    assert moved.brokers["a"].master == "h:7"
    assert moved.brokers["b"].master == "h:1"


def test_another_address_of_a_master_is_not_less() -> None:
    known = memory(route("a"))
    assert known.learn("t", route("a", port=9), 1.0) == route("a", port=9)


def test_a_brokers_own_word_takes_its_queues_away_at_once() -> None:
    known = memory()
    known.lacks("t", "a")
    found = known.route("t")
    assert found is not None
    assert list(found.queues) == ["b"]
    known.lacks("t", "b")
    assert known.route("t") is None


def test_a_route_is_fresh_for_20_to_30_s_and_a_missing_topic_for_one() -> None:
    for draw, fresh_s in [(0.0, 20.0), (1.0, 30.0)]:
        known = memory(draw=draw)
        assert known.is_fresh("t", fresh_s - 0.1)
        assert not known.is_fresh("t", fresh_s)
    known = memory(None)
    assert known.is_fresh("t", 0.9)
    assert not known.is_fresh("t", 1.0)


def test_a_route_in_doubt_is_asked_for_again_but_not_twice_in_a_second() -> None:
    known = memory()
    known.doubt("t")
    assert known.is_doubted("t")
    assert known.is_fresh("t", 0.9)
    assert not known.is_fresh("t", 1.0)
    known.learn("t", BOTH, 1.0)
    assert not known.is_doubted("t")


def test_name_servers_that_do_not_answer_take_nothing_away_and_are_not_asked_at_once_again() -> None:
    known = memory()
    known.put_off("t", 100.0)
    assert known.is_fresh("t", 100.9)
    assert known.route("t") == BOTH


def test_the_topic_that_was_asked_for_the_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_memory, "TOPICS_MAX", 2)
    known = RouteMemory(lambda: 0.0)
    for topic in ("old", "older", "old", "new"):
        known.learn(topic, BOTH, 0.0)
    assert len(known) == 2
    assert known.route("older") is None


names = st.sampled_from("abc")
routes = st.builds(
    Route,
    st.dictionaries(names, st.builds(TopicQueues, st.integers(0, 3), st.integers(0, 3), st.just(READ_WRITE))),
    st.dictionaries(
        names, st.builds(BrokerAddresses, st.just("c"), st.dictionaries(st.integers(0, 2), st.just("h:1")))
    ),
)


@given(st.lists(st.tuples(st.none() | routes, st.floats(0.0, 29.0)), max_size=6))
def test_within_30_s_nothing_that_was_known_is_missing(answers: list[tuple[Route | None, float]]) -> None:
    known = memory()
    for answer, now_s in sorted(answers, key=lambda each: each[1]):
        found = known.learn("t", answer, now_s)
        assert found is not None
        assert not route_memory.misses(BOTH, found)


def test_routes_are_read_as_name_servers_write_them() -> None:
    body = {
        "queueDatas": [{"brokerName": "a", "readQueueNums": 4, "writeQueueNums": 2, "perm": 4, "topicSysFlag": 0}],
        "brokerDatas": [{"cluster": "c", "brokerName": "a", "brokerAddrs": {"0": "h:1", "3": "h:2"}, "zoneName": None}],
        "filterServerTable": {},
    }
    found = read_route(json.dumps(body).encode())
    assert found == Route({"a": TopicQueues(4, 2, Permission.READ)}, {"a": BrokerAddresses("c", {0: "h:1", 3: "h:2"})})
    assert found.queues["a"].is_readable
    assert not found.queues["a"].is_writable
    static = read_route(json.dumps(body | {"topicQueueMappingByBroker": {"a": {}}}).encode())
    assert static.is_static


def test_the_brokers_of_a_cluster_are_read_with_bare_numbers() -> None:
    found = read_cluster(b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"h:1"},"brokerName":"a","cluster":"c"}}}')
    assert found.brokers == {"a": BrokerAddresses("c", {0: "h:1"})}


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"queueDatas":{}}',
        b'{"queueDatas":[7]}',
        b'{"queueDatas":[{"brokerName":"a","readQueueNums":"4"}]}',
        b'{"queueDatas":[{"brokerName":"a","readQueueNums":2147483647,"writeQueueNums":4,"perm":6}]}',
        b'{"brokerDatas":[{"brokerName":7}]}',
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"x":"h:1"}}]}',
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"0":7}}]}',
    ],
)
def test_a_route_of_another_form_is_refused(body: bytes) -> None:
    with pytest.raises(BadFormat):
        read_route(body)
