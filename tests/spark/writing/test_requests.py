"""How a sink cuts its rows into requests: bounded in bytes for each request, and for all topics of a task together."""

from collections.abc import Iterator

import pyarrow as pa

from popmq_spark.writing import requests
from popmq_spark.writing.requests import Request

MAP = pa.map_(pa.string(), pa.string())


def cut(**columns: pa.Array) -> Iterator[Request]:
    return requests.requests(iter([pa.RecordBatch.from_pydict(columns)]), "t", 4096)


def test_properties_count_for_the_size_of_a_request() -> None:
    properties = pa.array([[("k", "x" * 30_000)]] * 1_000, MAP)
    made = list(cut(body=pa.array(["b"] * 1_000), properties=properties))
    assert sum(request.rows for request in made) == 1_000
    for request in made:
        assert 30_000 * request.rows <= requests.REQUEST_BYTES_MAX


def test_texts_that_are_not_ascii_are_counted_with_their_bytes() -> None:
    properties = pa.array([[("k", "日" * 20_000)]] * 400, MAP)
    for request in cut(body=pa.array(["b"] * 400), properties=properties):
        assert 60_000 * request.rows <= requests.REQUEST_BYTES_MAX


def test_rows_that_wait_for_many_topics_are_bounded_together_and_the_largest_topics_go_first() -> None:
    handed = 0
    large = 3_000_000

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal handed
        for row in range(400):
            size = large if row == 0 else 200_000
            handed += size
            name = "large" if row == 0 else f"t{row % 40}"
            yield pa.RecordBatch.from_pydict({"body": [b"x" * size], "topic": [name]})

    order = []
    taken = 0
    for request in requests.requests(batches(), "t", 4096):
        assert handed - taken <= requests.WAITING_BYTES_MAX + 200_000
        order.append(request.topic)
        taken += sum(len(row.body) for row in request.messages().rows())
    assert order[0] == "large"
    assert taken == handed
