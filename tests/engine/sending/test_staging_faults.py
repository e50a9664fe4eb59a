"""A sink, its tasks or the broker die anywhere: each row is in its topic once; and what that costs."""

import functools
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.sending import publishing, stages
from popmq_server.embedded.state import space
from popmq_server.embedded.store import keys
from popmq_server.embedded.store.lmdb import Transaction
from tests.engine.faults import failing_put, killed_before_answer, killed_before_commit
from tests.engine.rig import MINUTE, SECOND, Rig, message, numbered
from tests.engine.stages import commit, committing, stage, staging_of
from tests.engine.traffic.traffic_timing import texts
from tests.engine.work import calls


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "BLOCK_MESSAGES_MAX", 4)
    monkeypatch.setattr(publishing, "PUBLISH_MESSAGES_MAX", 8)


def test_a_sink_killed_around_its_commit_stores_each_row_once(rig: Rig) -> None:
    """The sink repeats the commit until it is answered."""
    rig.topic()
    entries = [message(text) for text in numbered("", 20)]
    killed_before_commit(rig, staging_of("a", entries))
    killed_before_answer(rig, staging_of("a", entries))
    rig.do(staging_of("a", entries))
    killed_before_commit(rig, committing(("a", 20)))
    killed_before_answer(rig, committing(("a", 20)))
    killed_before_commit(rig)  # a piece of the publishing
    rig.run()
    rig.crash()
    assert commit(rig, ("a", 20)) == ask.BatchCommitted(20, True)
    assert texts(rig) == list(numbered("", 20))


@pytest.mark.parametrize("put", range(1, 12))
def test_a_full_map_at_any_put_of_a_stage_loses_and_doubles_nothing(rig: Rig, put: int) -> None:
    rig.topic()
    entries = [message(text) for text in numbered("", 12)]
    with failing_put(put):
        for command in (staging_of("a", entries), committing(("a", 12)), None, None):
            rig.run(*([command] if command else []))
    for command in (staging_of("a", entries), committing(("a", 12))):
        rig.run(command)
        rig.advance(MINUTE)
    assert texts(rig) == list(numbered("", 12))


def test_a_block_that_cannot_be_read_is_set_aside_and_does_not_stop_the_others(rig: Rig) -> None:
    rig.topic()
    stage(rig, "a", *numbered("", 8))

    def flip(kv: Transaction) -> None:
        found = kv.first("stage")
        assert found is not None
        raw = bytes(found[1])
        kv.put("stage", found[0], raw[:-1] + bytes((raw[-1] ^ 1,)))

    rig.write(flip)
    assert len(rig.findings()) == 2
    commit(rig, ("a", 8))
    assert texts(rig) == ["4", "5", "6", "7"]
    assert len(rig.read("quar")) == 1


def test_a_stage_whose_publishing_fails_does_not_hold_up_other_sinks(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.topic()
    rig.topic("u")
    stage(rig, "a", "1")
    stage(rig, "b", "2", batch=1, topic="u")
    publish = publishing._publish

    def fails(tx: Any, topic: Any, *more: Any) -> None:
        if topic.name == "t":
            raise ValueError("injected")
        publish(tx, topic, *more)

    with monkeypatch.context() as patched:
        patched.setattr(publishing, "_publish", fails)
        rig.do(committing(("a", 1)))
        commit(rig, ("b", 1), batch=1, topic="u")
        assert texts(rig, "u") == ["2"]
        rig.advance(MINUTE)
        assert texts(rig) == []
    rig.advance(MINUTE)
    assert texts(rig) == ["1"]


def test_a_full_store_publishes_when_it_has_room_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.topic()
    stage(rig, "a", *numbered("", 12))
    rig.do(committing(("a", 12)))
    with monkeypatch.context() as patched:
        patched.setattr(space.Room, "has", no_room)
        rig.advance(10 * SECOND)
        assert texts(rig) == []
    rig.advance(2 * SECOND)
    assert texts(rig) == list(numbered("", 12))


def no_room(self: space.Room, kind: int, size: int = 0) -> bool:
    self.short = True
    self.plenty = False
    return False


def test_a_stage_number_is_not_used_twice_after_an_older_release_had_the_store_open(rig: Rig) -> None:
    rig.topic()
    stage(rig, "a", "1")

    def drop_counter(kv: Transaction) -> None:
        raw = kv.get("meta", b"counters")
        assert raw is not None
        kv.put("meta", b"counters", bytes(raw[: -keys.U64.size]))

    rig.write(drop_counter)
    rig.crash()
    stage(rig, "b", "2")
    assert commit(rig, ("a", 1), ("b", 1)).messages == 2
    assert texts(rig) == ["1", "2"]


# ── Cost ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_commit_costs_its_stages_and_a_piece_its_bounds_never_the_batch(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a client asks while a batch is published waits for one piece, of the same work for any batch."""
    monkeypatch.undo()
    rig.topic()
    costs = []
    for batch, messages in enumerate((2_000, 20_000)):
        for piece in range(messages // 1000):
            entries = [message(f"{batch}.{piece}.{n}") for n in range(1000)]
            rig.do(staging_of(f"{batch}", entries, batch=batch, piece=piece))
        command = committing((f"{batch}", messages), batch=batch)
        committed = calls(functools.partial(rig.run, command))
        costs.append((committed, max(calls(rig.run) for _ in range(2))))
        rig.settle()
    (commit_small, piece_small), (commit_large, piece_large) = costs
    assert commit_large < 1.2 * commit_small
    assert piece_large < 1.2 * piece_small
    assert rig.browse("t").max_offset == 22_000
