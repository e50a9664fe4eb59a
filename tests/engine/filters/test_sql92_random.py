"""Random SQL92 expressions: the server's closures against the slow judge of sql_oracle.py, over random messages."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popmq_server.errors import Refused
from popmq_server.values.filters import filter as filters
from popmq_server.values.filters import sql92
from tests.engine.filters import sql_oracle as oracle


@pytest.mark.slow
@settings(max_examples=150)
@given(oracle.expressions, st.data(), st.lists(oracle.messages, min_size=1, max_size=5))
def test_an_expression_means_what_the_oracle_says(
    tree: oracle.Tree, data: st.DataObject, messages: list[dict[str, str]]
) -> None:
    text = data.draw(oracle.spelled(tree))
    decide = sql92.compiled(text)
    for message in messages:
        assert decide(message) is oracle.decision(tree, message), (text, message)


@pytest.mark.slow
@given(oracle.expressions, st.data())
def test_spelling_does_not_count(tree: oracle.Tree, data: st.DataObject) -> None:
    one, other = (data.draw(oracle.spelled(tree)) for _ in range(2))
    assert filters.make("sql92", one).same(filters.make("sql92", other))


@pytest.mark.slow
@given(st.text(st.sampled_from("ab15.'()<>=-+*/ \nNOTANDEISLU,")), oracle.messages)
def test_any_text_is_a_filter_or_is_refused(text: str, message: dict[str, str]) -> None:
    """Nothing else can come out of it: no error of the library, none of Python."""
    try:
        decide = sql92.compiled(text)
    except Refused as refused:
        offset = int(str(refused).split("(offset ")[1].split(")")[0])
        outside = not 0 <= offset <= len(text)
        told = (refused.code, outside)
    else:
        told = ("FILTER_INVALID", decide(message) not in (True, False, None))
    assert told == ("FILTER_INVALID", False)
