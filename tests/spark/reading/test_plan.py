"""The offset JSON holds all that decides which token holds which message; queues share the rows of a micro-batch."""

import json
import random
from collections import Counter

import pytest

import popmq
from popmq_spark import ranges
from popmq_spark.lease.plan import Cap, Plan
from popmq_spark.positions import OffsetError
from popmq_spark.ranges import admitted

PLAN = Plan(
    owner="9f",
    epoch=12,
    parts=4,
    topics={
        "b": Cap(70_001, popmq.Position({1: 20, 0: 4711}, retry=12), topic_id=7),
        "a": Cap(9),
    },
    group="spark",
    tag="x || y",
    cap_bytes=128 << 20,
    chunk_rows=1_500,
)


def test_a_plan_comes_back_from_its_json_as_it_was() -> None:
    assert Plan.from_json(json.loads(json.dumps(PLAN.to_json()))) == PLAN
    assert Plan.from_json(json.loads(json.dumps(Plan(owner="9f").to_json()))) == Plan(owner="9f")


def test_equal_plans_have_equal_texts_because_spark_compares_texts() -> None:
    upto = {"queues": {"0": 4711, "1": 20}, "retry": 12}
    twin = Plan.from_json(
        {**PLAN.to_json(), "topics": {"a": {"cap": 9, "upto": None}, "b": {"cap": 70_001, "upto": upto, "id": 7}}}
    )
    assert json.dumps(twin.to_json()) == json.dumps(PLAN.to_json())


def test_an_offset_of_another_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(OffsetError, match="version 3; the checkpoint holds"):
        Plan.from_json({**PLAN.to_json(), "v": 2})
    with pytest.raises(OffsetError, match="start with a new checkpoint"):
        Plan.from_json({"partition-0": 17})


@pytest.mark.parametrize(("parts", "cap"), [(1, 1), (3, 10), (7, 7), (64, 100_000), (13, 1_000_000)])
def test_the_shares_sum_to_the_cap_and_none_is_empty(parts: int, cap: int) -> None:
    plan = Plan("9f", 1, parts, {"t": Cap(cap)}, 128 << 20)
    shares = [share for part in range(parts) for _, share, *_ in plan.slices(part)]
    assert sum(shares) == cap
    assert max(shares) - min(shares) <= 1
    assert min(shares) >= 1  # to the broker a share of 0 means: no bound


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 40])
def test_tasks_share_the_rows_of_all_topics_evenly_and_each_topic_gives_its_cap(parts: int) -> None:
    caps = {"b": 1, "a": 30, "c": 9, "d": 0}
    plan = Plan("9f", 1, parts, {topic: Cap(rows) for topic, rows in caps.items()}, 128 << 20)
    slices = [[*plan.slices(part)] for part in range(parts)]
    sums = [sum(row.share for row in task) for task in slices]
    assert max(sums) - min(sums) <= 1
    given = Counter[str]()
    for row in (row for task in slices for row in task):
        given[row.topic] += row.share
    assert given == {"a": 30, "b": 1, "c": 9}


@pytest.mark.parametrize("cap_bytes", [1 << 20, 16 << 20, 128 << 20, 1 << 30])
def test_all_chunks_together_hold_the_share_and_stay_near_the_bytes(cap_bytes: int) -> None:
    plan = Plan("9f", 1, 5, {"t": Cap(60_000), "u": Cap(40_000)}, cap_bytes)
    slices = [row for part in range(plan.parts) for row in plan.slices(part)]
    assert all(row.chunks * plan.chunk_rows >= row.share for row in slices)
    most = sum(row.chunks * row.chunk_bytes for row in slices)
    assert most <= max(cap_bytes, sum(row.chunks for row in slices) * (64 << 10))


def test_small_messages_reach_the_row_limit_before_the_byte_limit() -> None:
    plan = Plan("9f", 1, 5, {"t": Cap(100_000)}, 128 << 20)
    (row,) = plan.slices(0)
    assert row.chunks * row.chunk_bytes >= row.share * 1024


def test_large_messages_reach_the_byte_limit_before_the_number_of_chunks() -> None:
    plan = Plan("9f", 1, 2, {"t": Cap(40)}, 32 << 20)
    slices = [row for part in range(plan.parts) for row in plan.slices(part)]
    assert sum(row.chunks * row.chunk_bytes for row in slices) == 32 << 20


def test_a_plan_of_a_preview_keeps_its_number_of_chunks() -> None:
    offset = Plan("9f", 1, 1, {"t": Cap(40)}, 128 << 20).to_json()
    del offset["chunkBytes"]
    (row,) = Plan.from_json(offset).slices(0)
    assert row.chunks == 2


# ── The rows of each queue ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rows", [1, 2, 7, 40, 60])
def test_each_queue_gives_its_exact_share_over_all_turns(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    backlog = {("a", 0): 40, ("a", 1): 0, ("b", 0): 1, ("b", 1): 20}
    given = Counter[tuple[str, int]]()
    for turn in range(61):
        monkeypatch.setattr(ranges, "randrange", {61: turn}.__getitem__)
        shares = admitted(backlog, rows)
        assert sum(shares.values()) == rows
        assert all(0 <= share <= backlog[queue] for queue, share in shares.items())
        given.update(shares)
    assert given == {queue: has * rows for queue, has in backlog.items()}


def test_a_queue_with_one_message_gets_its_turn_while_others_have_ever_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "randrange", random.Random(1).randrange)
    backlog = {("t", queue): 1 for queue in range(4)}
    for _ in range(200):
        backlog |= {("t", queue): backlog["t", queue] + 2 for queue in range(2)}
        shares = admitted(backlog, 3)
        backlog = {queue: has - shares[queue] for queue, has in backlog.items()}
    assert backlog["t", 2] == backlog["t", 3] == 0


def test_rows_for_all_admit_all() -> None:
    assert admitted({("t", 0): 3, ("t", 1): 0}, 3) == {("t", 0): 3, ("t", 1): 0}
