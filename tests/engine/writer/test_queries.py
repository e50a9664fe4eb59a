"""Every query has a handler, and the handler answers with the type that the query names."""

import typing

import pytest

from popmq_server.contract.commands import LANE_POP, LANES, queries
from popmq_server.contract.commands.numbers import Rows
from popmq_server.contract.commands.queries import Listing, Query
from popmq_server.embedded.writer.handlers import HANDLERS
from popmq_server.protocols.access.needs import ASKING, ROWS

DERIVED = (*Query.__subclasses__(), *Listing.__subclasses__())
QUERIES = [query for query in DERIVED if query.__module__ == queries.__name__ and query is not Listing]


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_is_answered_with_the_type_that_it_names(query: type[Query[object]]) -> None:
    (base,) = vars(query)["__orig_bases__"]
    (row,) = typing.get_args(base)
    hints = typing.get_type_hints(HANDLERS[query])
    assert hints["return"] == (Rows[row] if typing.get_origin(base) is Listing else row)  # type: ignore[valid-type]
    assert query in hints.values(), "the handler takes another query"


def test_queries_run_after_what_is_stored_and_each_has_its_right() -> None:
    assert {LANES[query] for query in QUERIES} == {LANE_POP}
    assert set(QUERIES) == ASKING.keys() > ROWS.keys()
