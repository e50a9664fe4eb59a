"""Plain rows are encoded column by column; the requests are those that row by row would have been made."""

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_spark.rows import PROPERTIES_BYTES_MAX, TEXT_MAX, Row
from popmq_spark.writing import requests

MAP = pa.map_(pa.string(), pa.string())
TEXTS = ["", "a", "k-1", "é", "日本語", "x" * 200, "😀"]
BODIES = [b"", b"b", b"\x00\xff", b"x" * 127, b"x" * 128, b"y" * 17_000]
TOPICS = ["a", "b", "", "topic ü"]
PAIRS = [[], [("n", "v")], [("n", ""), ("é", "日")], [("n", "v"), ("m", "w" * 300)], [("twice", "1"), ("twice", "2")]]
#: Types that a column of these values may have.
TEXT_TYPES = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
BODY_TYPES = [pa.binary(), pa.large_binary()]


def some(chance: random.Random, values: list[Any], count: int, nulls: float) -> list[Any]:
    return [None if chance.random() < nulls else chance.choice(values) for _ in range(count)]


def plain_batch(chance: random.Random, nulls: float = 0.0) -> pa.RecordBatch:
    """A batch of rows that a sink takes as they are, cut out of a longer one; with `nulls` some have no body."""
    count = chance.randint(1, 40)
    texts = [text for text in TEXTS if text] if chance.random() < 0.5 else TEXTS
    columns: dict[str, Any] = {"body": pa.array(some(chance, BODIES, count, nulls), chance.choice(BODY_TYPES))}
    if chance.random() < 0.3:
        columns = {"value": pa.array(some(chance, TEXTS, count, nulls), chance.choice(TEXT_TYPES[:2]))}
    for name in ("key", "tag", "message_id", "message_group"):
        if chance.random() < 0.5:
            columns[name] = pa.array(some(chance, texts, count, 0.2), chance.choice(TEXT_TYPES))
    if chance.random() < 0.5:
        columns["topic"] = pa.array(some(chance, TOPICS, count, 0.2), chance.choice(TEXT_TYPES))
    if chance.random() < 0.5:
        columns["properties"] = pa.array(some(chance, PAIRS, count, 0.2), MAP)
    if chance.random() < 0.3:
        columns["priority"] = pa.nulls(count, pa.int32())
    whole = pa.RecordBatch.from_pydict(columns)
    return whole.slice(chance.randint(0, count // 2), chance.randint(1, count))


def with_a_rare_column(chance: random.Random) -> pa.RecordBatch:
    batch = plain_batch(chance, chance.choice([0.0, 0.3]))
    rare = {"priority": pa.array(some(chance, [0, 3, -1], len(batch), 0.3), pa.int32())}
    rare |= {"keys": pa.array(some(chance, [["k"], ["a", "b"]], len(batch), 0.3), pa.list_(pa.string()))}
    given = {name: batch.column(name) for name in batch.schema.names}
    return pa.RecordBatch.from_pydict(given | dict([chance.choice(list(rare.items()))]))


def told(message: pb.Message) -> pb.Message:
    """A message without what differs from one encoding to the next."""
    message.born_ms = 0
    if len(message.message_id) > 16 and message.message_id[16] == "-":
        message.message_id = "made"
    return message


def made(batches: list[pa.RecordBatch], rows_max: int) -> list[tuple[str, list[pb.Message], list[Row], frozenset[str]]]:
    """What the requests of a task hold."""
    found = list(requests.requests(iter(batches), "usual", rows_max))
    whole = [(each, each.messages()) for each in found]
    return [
        (each.topic, list(map(told, messages.rows())), each.bad, messages.message_groups & {*TEXTS})
        for each, messages in whole
    ]


@pytest.fixture
def by_rows(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[pa.RecordBatch], int], Any]:
    """`made`, row by row."""

    def found(batches: list[pa.RecordBatch], rows_max: int) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(requests, "encoded", lambda *_: None)
            return made(batches, rows_max)

    return found


@pytest.mark.parametrize("seed", range(60))
def test_the_requests_of_columns_are_those_of_their_rows(seed: int, by_rows: Any, monkeypatch: Any) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(requests, "PIECE_ROWS", chance.choice([1, 7, 1000]))
    kinds = [plain_batch, lambda chance: plain_batch(chance, 0.2), with_a_rare_column]
    batches = [chance.choice(kinds)(chance) for _ in range(chance.randint(1, 4))]
    rows_max = chance.choice([1, 3, 10, 4096])
    one, other = made(batches, rows_max), by_rows(batches, rows_max)
    assert [each[:3] for each in one] == [each[:3] for each in other]
    assert all(its[3] >= theirs[3] for its, theirs in zip(one, other, strict=True)), (
        "groups that a request must wait for"
    )


@pytest.mark.parametrize("seed", range(10))
def test_requests_are_cut_at_the_same_bytes(seed: int, by_rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(requests, "REQUEST_BYTES_MAX", 20_000)
    count = 200
    bodies = pa.array(some(chance, BODIES, count, 0.0), pa.binary())
    batch = pa.RecordBatch.from_pydict({"body": bodies, "message_id": [f"m-{number}" for number in range(count)]})
    found = made([batch], 4096)
    assert found == by_rows([batch], 4096)
    assert len(found) > 10
    assert all(sum(map(len, (row.body for row in rows))) <= 20_000 for _, rows, _, _ in found if len(rows) > 1)


@pytest.mark.parametrize("seed", range(5))
def test_plain_rows_are_not_made_row_by_row(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "rows", lambda *_: pytest.fail("a row was made an object"))
    assert made([plain_batch(random.Random(seed))], 4096)


@pytest.mark.parametrize(
    ("columns", "bad"),
    [
        ({"body": [b"x" * ((4 << 20) + 1)]}, True),
        ({"key": ["k" * (TEXT_MAX + 1)]}, True),
        ({"properties": pa.array([[("k", None)]], MAP)}, True),
        ({"properties": pa.array([[("k", "v" * PROPERTIES_BYTES_MAX)]], MAP)}, True),
        ({"properties": pa.array([[("k", "v" * 5000)]], MAP)}, False),
        ({"topic": [""]}, True),
    ],
)
def test_rows_that_need_a_look_get_it(columns: dict[str, Any], bad: bool) -> None:
    batch = pa.RecordBatch.from_pydict({"body": [b"b"]} | columns)
    (request,) = requests.requests(iter([batch]), "" if "topic" in columns else "usual", 10)
    assert (len(request.bad), len(request.messages())) == (int(bad), int(not bad))
