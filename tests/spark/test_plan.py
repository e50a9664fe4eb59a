"""The offset JSON holds all that decides which token holds which message."""

import json

import pytest

import popmq
from popmq_spark.plan import OffsetError, Plan

PLAN = Plan(
    owner="9f",
    epoch=12,
    parts=4,
    cap=70_001,
    cap_bytes=128 << 20,
    chunk_rows=1_500,
    upto=popmq.Position({1: 20, 0: 4711}, retry=12),
)


def test_a_plan_comes_back_from_its_json_as_it_was() -> None:
    assert Plan.from_json(json.loads(json.dumps(PLAN.to_json()))) == PLAN
    assert Plan.from_json(json.loads(json.dumps(Plan(owner="9f").to_json()))) == Plan(owner="9f")


def test_equal_plans_have_equal_texts_because_spark_compares_texts() -> None:
    twin = Plan.from_json({**PLAN.to_json(), "upto": {"queues": {"0": 4711, "1": 20}, "retry": 12}})
    assert json.dumps(twin.to_json()) == json.dumps(PLAN.to_json())


def test_an_offset_of_another_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(OffsetError, match="version 1; the checkpoint holds"):
        Plan.from_json({**PLAN.to_json(), "v": 2})
    with pytest.raises(OffsetError, match="start with a new checkpoint"):
        Plan.from_json({"partition-0": 17})


@pytest.mark.parametrize(("parts", "cap"), [(1, 1), (3, 10), (7, 7), (64, 100_000), (13, 1_000_000)])
def test_the_shares_sum_to_the_cap_and_none_is_empty(parts: int, cap: int) -> None:
    plan = Plan("9f", 1, parts, cap, 128 << 20)
    shares = [plan.share(part) for part in range(parts)]
    assert sum(shares) == cap
    assert max(shares) - min(shares) <= 1
    assert min(shares) >= 1  # to the broker a share of 0 means: no bound


@pytest.mark.parametrize("cap_bytes", [1 << 20, 16 << 20, 128 << 20, 1 << 30])
def test_all_chunks_together_hold_the_share_and_stay_near_the_bytes(cap_bytes: int) -> None:
    plan = Plan("9f", 1, 5, 100_000, cap_bytes)
    for part in range(plan.parts):
        assert plan.chunks(part) * plan.chunk_rows >= plan.share(part)
    most = sum(plan.chunks(part) * plan.chunk_bytes(part) for part in range(plan.parts))
    assert most <= max(cap_bytes, 5 * plan.chunks(0) * (64 << 10))


def test_small_messages_reach_the_row_limit_before_the_byte_limit() -> None:
    plan = Plan("9f", 1, 5, 100_000, 128 << 20)
    assert plan.chunks(0) * plan.chunk_bytes(0) >= plan.share(0) * 1024
