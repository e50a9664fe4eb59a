"""Names of topics and groups."""

import pytest

from popmq_remoting import names
from popmq_remoting.errors import BadFormat


@pytest.mark.parametrize("name", ["orders", "shop%orders", "a|b-c_9", "x" * 127])
def test_a_name_that_brokers_take_is_valid(name: str) -> None:
    names.validate_topic(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", "a.b", "a+b", "a b", "é", "x" * 128),
        *("%RETRY%g", "%DLQ%g", "rmq_sys_x", "%LMQ%x", "TBW102", "SELF_TEST_TOPIC"),
    ],
)
def test_a_topic_that_brokers_refuse_or_keep_for_themselves_is_refused(name: str) -> None:
    with pytest.raises(BadFormat):
        names.validate_topic(name)


def test_a_group_has_120_characters_at_most() -> None:
    names.validate_group("g" * 120)
    with pytest.raises(BadFormat):
        names.validate_group("g" * 121)


@pytest.mark.parametrize("kind", "012")
def test_the_kind_of_a_topic_is_told_by_its_name(kind: str) -> None:
    assert names.kind_of(names.pop_topic(kind, "t", "g")) == kind


def test_another_kind_is_refused() -> None:
    with pytest.raises(BadFormat):
        names.pop_topic("3", "t", "g")


def test_topics_of_a_group_bear_its_name() -> None:
    assert (names.retry_topic("g"), names.dead_letter_topic("g")) == ("%RETRY%g", "%DLQ%g")
