"""Names: both ways between PopMQ and RocketMQ, and what is hidden or reserved."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popmq_remoting import names as theirs
from popmq_server.cluster import names
from popmq_server.errors import Refused

ours = st.text("abcXYZ019_.-", min_size=1, max_size=120).filter(lambda name: not name.startswith(("popmq", ".")))


@given(ours)
def test_a_name_comes_back_as_it_was(name: str) -> None:
    assert names.shown(names.broker_topic(name)) == name
    assert names.shown(names.broker_group(name)) == name
    assert names.shown(names.broker_topic(f"%DLQ%{name}")) == f"%DLQ%{name}"


@given(ours)
def test_a_name_for_brokers_is_one_that_they_accept(name: str) -> None:
    theirs.validate_topic(names.broker_topic(name))
    theirs.validate_group(names.broker_group(name))
    theirs.validate_topic(names.retry_topic(name, name))
    theirs.validate_topic(names.broker_topic(f"%RETRY%{name}+orders"))


def test_a_namespace_is_what_it_is_for_other_clients_of_the_cluster() -> None:
    assert names.broker_topic("shop.orders") == "shop%orders"
    assert names.broker_topic("%DLQ%shop.bill") == "%DLQ%shop%bill"
    assert names.lock_group("shop%bill") == "popmq_lock_shop%bill"


@given(ours, ours, ours)
def test_a_retry_topic_belongs_to_one_group_and_topic(group: str, topic: str, other: str) -> None:
    hidden = names.broker_topic(f"%RETRY%{group}+{topic}")
    assert hidden == names.retry_topic(group, topic)
    assert (hidden == names.retry_topic(other, topic)) == (other == group)
    assert (hidden == names.retry_topic(group, other)) == (other == topic)
    assert hidden.startswith("popmq_retry_")
    assert names.shown_topics([hidden]) == []


@pytest.mark.parametrize(
    "name",
    [
        *("a+b", "a b", "ü", "", "x" * 128, "TBW102", "rmq_sys_a", "%LMQ%a", "%RETRY%bill", "%RETRY%+orders"),
        *("popmq_retry_0123", "popmq_lock_bill", "%DLQ%popmq_reader", "%DLQ%", ".RETRY.a"),
    ],
)
def test_a_topic_name_that_brokers_refuse_or_that_is_reserved_is_refused_at_its_field(name: str) -> None:
    with pytest.raises(Refused) as refused:
        names.broker_topic(name, "messages.topic")
    assert (refused.value.code, refused.value.field) == ("INVALID_FIELD", "messages.topic")
    assert refused.value.action


@pytest.mark.parametrize(
    "name", ["a+b", "x" * 121, "CID_RMQ_SYS_a", "popmq_lock_bill", "popmq_reader", "TOOLS_CONSUMER"]
)
def test_a_group_name_that_is_refused_or_reserved_is_refused_at_its_field(name: str) -> None:
    with pytest.raises(Refused) as refused:
        names.broker_group(name)
    assert (refused.value.code, refused.value.field) == ("INVALID_FIELD", "group")


def test_lists_show_what_users_made_and_their_dead_letters() -> None:
    topics = [
        *("shop%orders", "%DLQ%shop%bill", "broker-a", "DefaultCluster", "%RETRY%bill", "%RETRY%bill_orders"),
        *("popmq_retry_01", "rmq_sys_REVIVE_LOG_c", "TBW102", "SCHEDULE_TOPIC_XXXX", "%DLQ%CID_RMQ_SYS_TRANS", "a"),
    ]
    assert names.shown_topics(topics, ["broker-a"]) == ["%DLQ%shop.bill", "a", "shop.orders"]
    groups = ["shop%bill", "popmq_reader", "popmq_lock_bill", "CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER", "a"]
    assert names.shown_groups(groups) == ["a", "shop.bill"]


@pytest.mark.parametrize("odd", ["my.group", "g" * 121, "a b"])
def test_lists_leave_out_what_no_call_can_name(odd: str) -> None:
    assert names.shown_groups([odd, "a"]) == ["a"]
    assert names.shown_topics([f"%DLQ%{odd}", "t" * 128, "a"]) == ["a"]
