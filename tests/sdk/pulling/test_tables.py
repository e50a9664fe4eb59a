"""Messages as tables of Arrow and pandas, with the names and types of the Spark connector."""

import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import popmq
from tests.sdk.conftest import GROUP, TOPIC

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pandas")


async def the_one_with_rows(read: Callable[[int], Awaitable[Any]]) -> Any:
    """What is read of the queue that has messages. A cluster shows what it said OK to some milliseconds later."""
    while True:
        for queue in range(8):
            page = await read(queue)
            if len(page.to_arrow()):
                return page


async def test_pulled_browsed_and_peeked_messages_are_the_same_table(client: Any) -> None:
    message = popmq.Message("body", key="k", more_keys=["l"], tag="t", properties={"a": "b"})
    await client.send(TOPIC, [message, popmq.Message(b"\x00", key="k")])
    table = (await the_one_with_rows(lambda queue: client.messages.browse(TOPIC, queue))).to_arrow()
    queue = table["queue_id"][0].as_py()
    pulled = (await client.pull_columns(TOPIC, queue, 0)).to_arrow()
    same = [name for name in pulled.column_names if name != "delivery_attempt"]  # a pull counts as the first
    assert pulled.select(same).equals(table.select(same))
    peeked = popmq.Columns.of(await client.messages.peek(TOPIC, GROUP, max_messages=2)).to_arrow()
    assert peeked.select(same).equals(table.select(same))
    assert table["body"].to_pylist() == [b"body", b"\x00"]
    assert table["tag"].to_pylist() == ["t", None]
    assert table["keys"].to_pylist() == [["k", "l"], ["k"]]
    assert table["properties"].to_pylist() == [[("a", "b")], []]
    assert (datetime.now(UTC) - table["store_ts"][0].as_py()).total_seconds() < 60


async def test_a_frame_has_the_same_names_and_properties_as_dicts(client: Any) -> None:
    await client.send(TOPIC, popmq.Message("x", properties={"a": "b"}))
    frame = (await the_one_with_rows(lambda queue: client.pull_columns(TOPIC, queue, 0))).to_pandas()
    assert list(frame["properties"]) == [{"a": "b"}]
    assert str(frame["born_ts"].dtype).startswith("datetime64[us, UTC")


def test_the_types_are_those_of_the_spark_connector() -> None:
    types = pytest.importorskip("popmq_spark.columns")._TYPES
    for field in popmq.Columns.of([]).to_arrow().schema:
        assert field.type == types[field.name], field.name


@pytest.mark.parametrize(("library", "method"), [("pyarrow", "to_arrow"), ("pandas", "to_pandas")])
def test_a_library_that_is_missing_is_named(library: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(popmq.errors.MissingLibrary, match=f"needs {library}.*pip install {library}"):
        getattr(popmq.Columns.of([]), method)()
