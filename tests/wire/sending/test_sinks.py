"""Exactly-once sinks as a client in any language sees them: Stage, CommitBatch, DropStages."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from tests.wire.stubs import CALL_S, TOPIC, Stubs, bodies, refusal

SINK = "job"


def staging(*texts: bytes, stage_id: str = "a", **fields: Any) -> pb.StageRequest:
    rows = [pb.Message(body=text) for text in texts]
    return pb.StageRequest(topic=TOPIC, messages=rows, sink=SINK, stage_id=stage_id, **fields)


def stage(stubs: Stubs, *texts: bytes, **fields: Any) -> list[str]:
    """The codes of refused messages, "" for the others."""
    results = stubs.broker.Stage(staging(*texts, **fields), timeout=CALL_S).results
    return [pb.Code.Name(row.error.code) if row.HasField("error") else "" for row in results]


def committing(*stages: tuple[str, int], batch: int = 0, origin: str = "") -> pb.CommitBatchRequest:
    names = [pb.StageName(stage_id=stage_id, topic=TOPIC, messages=count) for stage_id, count in stages]
    return pb.CommitBatchRequest(sink=SINK, batch=batch, stages=names, origin=origin)


def commit(stubs: Stubs, *stages: tuple[str, int], batch: int = 0, origin: str = "") -> tuple[int, bool]:
    answer = stubs.broker.CommitBatch(committing(*stages, batch=batch, origin=origin), timeout=CALL_S)
    return answer.messages, answer.duplicate


def pop(stubs: Stubs, count: int) -> list[bytes]:
    """Waits for as many messages: a batch is published soon after its commit."""
    found: list[bytes] = []
    while len(found) < count:
        found += bodies(stubs.pop(wait_ms=10_000))
    return found


def test_a_batch_is_visible_once_it_is_committed_and_once_only(shop: Stubs) -> None:
    assert stage(shop, b"1", b"2") == ["", ""]
    assert stage(shop, b"1", b"2") == ["", ""], "the answer was lost"
    assert stage(shop, b"3", piece=1) == [""]
    assert bodies(shop.pop()) == []
    assert commit(shop, ("a", 3)) == (3, False)
    assert commit(shop, ("a", 3)) == (3, True)
    assert pop(shop, 3) == [b"1", b"2", b"3"]
    assert bodies(shop.pop()) == []


@pytest.mark.parametrize("batch", [6, 7])
def test_numbers_that_another_origin_committed_are_refused_and_nothing_changes(shop: Stubs, batch: int) -> None:
    stage(shop, b"old", batch=7)
    commit(shop, ("a", 1), batch=7, origin="one")
    assert pop(shop, 1) == [b"old"]
    stage(shop, b"new", stage_id="b", batch=batch)
    refused = refusal(shop.broker.CommitBatch, committing(("b", 1), batch=batch, origin="two"))
    assert refused.code == "ALREADY_EXISTS"
    assert f"batch {batch} of sink 'job' is not a repeat: batch 7 was committed by origin 'one'" in refused.info.message
    assert commit(shop, ("a", 1), batch=7, origin="one") == (1, True), "a repeat"
    assert commit(shop, batch=8, origin="two") == (0, False), "a greater number is not a repeat"
    assert refusal(shop.broker.CommitBatch, committing(batch=8, origin="one")).code == "ALREADY_EXISTS"


def test_an_unknown_origin_is_not_compared(shop: Stubs) -> None:
    for known, repeat, batch in (("", "one", 0), ("one", "", 1)):
        assert commit(shop, batch=batch, origin=known) == (0, False)
        assert commit(shop, batch=batch, origin=repeat) == (0, True)


def test_a_message_that_is_refused_is_named_and_the_others_are_staged(shop: Stubs) -> None:
    request = staging(b"1", b"", b"3")
    request.messages[2].delay_ms = 1000
    first, empty, late = shop.broker.Stage(request, timeout=CALL_S).results
    assert not first.HasField("error")
    assert (empty.error.field, late.error.field) == ("messages[1].body", "messages[2].delay_ms")
    assert commit(shop, ("a", 1)) == (1, False)


def test_a_missing_id_is_the_same_in_a_repeated_piece(shop: Stubs) -> None:
    stage(shop, b"1")
    commit(shop, ("a", 1))
    (row,) = shop.pop(wait_ms=10_000).deliveries
    assert len(row.message.message_id) == 32


def test_a_dropped_stage_cannot_be_committed(shop: Stubs) -> None:
    stage(shop, b"1")
    dropped = pb.DropStagesRequest(sink=SINK, stages=[pb.StageName(stage_id="a", topic=TOPIC)] * 2)
    assert shop.broker.DropStages(dropped, timeout=CALL_S).dropped == 1
    refused = refusal(shop.broker.CommitBatch, committing(("a", 1)))
    assert (refused.code, refused.info.field) == ("STAGE_NOT_FOUND", "stages[0]")
