"""How queues and bindings are written as names of topics and as filters."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popmq_integrations.celery import names


@given(st.text(max_size=20) | st.text("..ab2f_-", max_size=12))
def test_the_name_of_a_queue_is_read_back_from_its_topic(queue: str) -> None:
    raw = re.sub(r"\.\.([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), names.topic_of_queue(queue))
    assert raw.encode("latin-1").decode() == queue


@given(st.text(max_size=20) | st.text("..exchange2f", max_size=14), st.text(max_size=20))
def test_no_queue_has_the_topic_of_an_exchange(queue: str, exchange: str) -> None:
    assert names.topic_of_queue(queue) != names.topic_of_exchange(exchange)
    assert not names.is_exchange(names.topic_of_queue(queue))


def test_usual_names_stay_as_they_are() -> None:
    for queue in ("celery", "high_priority", "mail.out", "a-b"):
        assert names.topic_of_queue(queue) == queue
    assert names.topic_of_queue("celery@host") == "celery..40host"


@pytest.mark.parametrize(
    ("kind", "key", "clause"),
    [
        ("direct", "it's", "routing_key = 'it''s'"),
        ("direct", "a.*", "routing_key = 'a.*'"),
        ("topic", "a.b", "routing_key = 'a.b'"),
        ("topic", "a.*", "routing_key STARTSWITH 'a.'"),
        ("topic", "a.#.b", "routing_key STARTSWITH 'a'"),
        ("topic", "a.b*", "routing_key = 'a.b*'"),
        ("topic", "#", "routing_key IS NOT NULL"),
        ("topic", "*.b", "routing_key IS NOT NULL"),
        ("fanout", "anything", "routing_key IS NOT NULL"),
    ],
)
def test_a_binding_is_a_filter_of_routing_keys(kind: str, key: str, clause: str) -> None:
    assert names.clause(kind, key) == clause


def test_bindings_are_added_and_removed_one_by_one() -> None:
    first, second = names.clause("direct", "a OR b"), names.clause("topic", "c.*")
    both = names.with_clause(names.with_clause("", first), second)
    assert both == f"{first} OR {second}"
    assert names.with_clause(both, second) == both
    assert names.without_clause(both, first) == second
    assert names.without_clause(second, second) == names.NOTHING
    assert names.with_clause(names.NOTHING, first) == first


@pytest.mark.parametrize(
    ("sql", "key", "passes"),
    [
        ("routing_key STARTSWITH 'a.'", "a.b", False),  # this one is known
        ("routing_key STARTSWITH 'a.' OR routing_key STARTSWITH 'b.'", "b.c", True),
        ("routing_key STARTSWITH 'a.' OR routing_key STARTSWITH 'b.'", "c", False),
        ("routing_key = 'it''s = x' OR routing_key STARTSWITH 'a.'", "it's = x", True),
        ("routing_key = 'a' OR routing_key STARTSWITH 'a.'", "a.b", False),
        ("routing_key STARTSWITH 'a.' OR routing_key IS NOT NULL", "c", True),
        (names.NOTHING, "c", False),
        ("", "c", False),
    ],
)
def test_a_filter_lets_through_what_other_bindings_do(sql: str, key: str, passes: bool) -> None:
    assert names.lets_through(sql, {"routing_key STARTSWITH 'a.'"}, key) == passes


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a.*", ["a.b"], ["a", "a.b.c", "b.a"]),
        ("a.#", ["a", "a.b", "a.b.c"], ["ab", "b.a"]),
        ("#.b", ["b", "a.b", "a.a.b"], ["ab", "b.a"]),
        ("a.#.b", ["a.b", "a.x.b", "a.x.y.b"], ["a", "a.x"]),
        ("*.b", ["a.b"], ["b", "a.a.b"]),
        ("#", ["", "a", "a.b"], []),
    ],
)
def test_a_pattern_matches_words_and_its_clause_lets_all_of_these_through(
    pattern: str, matching: list[str], others: list[str]
) -> None:
    for key in matching:
        assert names.matches([pattern], key)
        _, _, stem = names.clause("topic", pattern).partition("STARTSWITH ")
        assert key.startswith(stem.strip("'"))
    for key in others:
        assert not names.matches([pattern], key)
