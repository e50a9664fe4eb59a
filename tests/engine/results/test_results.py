"""Results: given with an ack in one commit, found by group and message id, kept for a time, forgotten."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract import commands as ask
from popmq_server.contract.commands import GivenResult
from popmq_server.embedded.operations import RedrivePiece, ResultsPiece
from popmq_server.embedded.rules.results import places
from popmq_server.embedded.store.keys import DATABASES
from popmq_server.errors import Refused
from tests.engine.results.giving import acking, leased
from tests.engine.rig import HOUR, MINUTE, Rig, bodies, refusal, sending

TOPIC = "%RESULT%g"


@pytest.fixture
def rig(rig: Rig) -> Rig:
    """Topic t with group g, which keeps results for an hour, and the topic out."""
    rig.pair(results_keep_ms=HOUR)
    rig.topic("out")
    return rig


def found(rig: Rig, *ids: str, group: str = "g", bytes_max: int = 1 << 20) -> dict[str, pb.Result]:
    some = rig.look(ResultsPiece(group, ids, bytes_max))
    return {message_id: pb.Result.FromString(data) for data, _, message_id in some.rows}


def texts(rig: Rig, *ids: str) -> dict[str, str]:
    return {message_id: row.body.decode() for message_id, row in found(rig, *ids).items()}


# ── Giving ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_result_is_stored_with_its_ack_and_found_by_the_id_of_the_message(rig: Rig) -> None:
    rows = leased(rig, "a", "b", "c")
    rig.do(acking(rows, "A", None, "", kind="text/plain"))
    rig.crash()
    row = found(rig, "a", "b", "c", "nobody")
    assert {**row} == {
        "a": pb.Result(message_id="a", body=b"A", content_type="text/plain"),
        "c": pb.Result(message_id="c", content_type="text/plain"),
    }
    assert rig.numbers().acked == 3


def test_a_settle_stores_results_with_what_it_sends(rig: Rig) -> None:
    rows = leased(rig, "a", "b")
    handles = tuple(row.handle for row in rows)
    rig.do(ask.Settle("g", handles, sends=(sending("x", topic="out"),), results=(GivenResult(1, b"B"),)))
    assert texts(rig, "a", "b") == {"b": "B"}
    assert bodies(rig.pop(topic="out")) == ["x"]


def test_a_result_of_a_lapsed_handle_is_refused_with_it(rig: Rig) -> None:
    a, b = leased(rig, "a", "b")
    rig.ack([a])
    assert [refusal(each) if each else "" for each in rig.do(acking([a, b], "A", "B")).results] == ["HANDLE_LAPSED", ""]
    assert texts(rig, "a", "b") == {"b": "B"}


def test_the_last_result_of_an_id_counts(rig: Rig) -> None:
    rig.do(acking(leased(rig, "a", "a"), "first", "second"))
    assert texts(rig, "a") == {"a": "second"}
    rig.do(acking(leased(rig, "a"), "third"))
    assert texts(rig, "a") == {"a": "third"}


def test_results_of_one_commit_are_those_of_their_own_messages(rig: Rig) -> None:
    a, b, c = leased(rig, "a", "b", "c")
    rig.run(acking([c], "C"), ask.Ack("g", (b.handle,)), acking([a], "A"))
    assert texts(rig, "a", "b", "c") == {"a": "A", "c": "C"}


def test_a_retried_message_has_its_result_too(rig: Rig) -> None:
    rig.release(leased(rig, "a"), delay_ms=0)
    rig.do(acking(rig.pop(), "A"))
    assert texts(rig, "a") == {"a": "A"}


def test_a_group_that_keeps_no_results_refuses_them_and_changes_nothing(rig: Rig) -> None:
    rig.group("none")
    rig.send("a")
    rows = rig.pop(group="none")
    before = {name: rig.read(name) for name in DATABASES}
    handles = tuple(row.handle for row in rows)
    for command in (acking(rows, "A", group="none"), ask.Settle("none", handles, results=(GivenResult(0, b"A"),))):
        (refused,) = rig.run(command)
        assert (refusal(refused), refused.field) == ("INVALID_FIELD", "results")
    assert {name: rig.read(name) for name in DATABASES} == before
    assert refusal(rig.run(ResultsPiece("none", ("a",), 1))[0]) == "INVALID_FIELD"
    assert refusal(rig.run(ask.ForgetResults("none", ("a",)))[0]) == "INVALID_FIELD"


# ── Failed results ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_rejected_message_has_a_failed_result_with_the_reason(rig: Rig) -> None:
    rig.reject(leased(rig, "a"), "no stock")
    row = found(rig, "a")["a"]
    assert (row.failure.reason, row.failure.attempts, row.failure.topic, row.body) == ("no stock", 1, "t", b"")


def test_a_message_without_attempts_left_has_a_failed_result(make_rig: Any) -> None:
    rig = make_rig("few")
    rig.pair(max_attempts=1, results_keep_ms=HOUR)
    leased(rig, "a")
    rig.advance(2 * MINUTE)
    assert found(rig, "a")["a"].failure.reason == "lease expired"


def test_a_redriven_message_waits_for_a_new_result(rig: Rig) -> None:
    rig.reject(leased(rig, "a"))
    rig.do(RedrivePiece("g"))
    assert texts(rig, "a") == {}
    rig.do(acking(rig.pop(), "A"))
    assert texts(rig, "a") == {"a": "A"}


def test_dead_letters_of_a_group_without_results_write_no_results(rig: Rig) -> None:
    rig.group("none")
    rig.send("a")
    rig.reject(rig.pop(group="none"), group="none")
    assert rig.look(ask.queries.Topics(TOPIC))[0].messages == 0


# ── How long ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_results_are_stored_without_a_delivery_and_the_last_one_counts(rig: Rig) -> None:
    given = [ask.MessageResult("a", b"1", "text/plain"), ask.MessageResult("b", b"2"), ask.MessageResult("a", b"3")]
    rig.do(ask.StoreResults("g", tuple(given)))
    assert texts(rig, "a", "b", "c") == {"a": "3", "b": "2"}
    rig.crash()
    assert texts(rig, "a", "b") == {"a": "3", "b": "2"}
    assert refusal(rig.run(ask.StoreResults("nobody", tuple(given)))[0]) == "GROUP_NOT_FOUND"


def test_a_forgotten_result_is_gone_and_a_later_one_is_found(rig: Rig) -> None:
    rig.do(acking(leased(rig, "a", "b"), "A", "B"))
    rig.do(ask.ForgetResults("g", ("a", "nobody")))
    assert texts(rig, "a", "b", "nobody") == {"b": "B"}
    rig.do(acking(leased(rig, "a"), "again"))
    assert texts(rig, "a") == {"a": "again"}


def test_a_result_is_found_until_its_time_is_over_and_is_dropped_then(rig: Rig) -> None:
    rig.do(acking(leased(rig, "a"), "A"))
    rig.skip(HOUR - 1)
    assert texts(rig, "a") == {"a": "A"}
    rig.skip(1)
    assert texts(rig, "a") == {}
    rig.advance(3 * MINUTE)
    assert rig.look(ask.queries.Topics(TOPIC))[0].bytes == 0


def test_a_shorter_time_holds_for_results_that_are_kept_already(rig: Rig) -> None:
    rig.do(acking(leased(rig, "a"), "A"))
    rig.skip(2 * MINUTE)
    rig.do(ask.UpdateGroup("g", {"results_keep_ms": MINUTE}))
    assert texts(rig, "a") == {}
    assert rig.look(ask.queries.Topics(TOPIC))[0].topic.keep_ms == MINUTE


def test_results_are_dropped_with_their_group_or_when_it_keeps_none(rig: Rig) -> None:
    rig.do(acking(leased(rig, "a"), "A"))
    rig.do(ask.UpdateGroup("g", {"results_keep_ms": 0}))
    assert refusal(rig.run(ResultsPiece("g", ("a",), 1))[0]) == "INVALID_FIELD"
    rig.do(ask.UpdateGroup("g", {"results_keep_ms": HOUR}))
    assert texts(rig, "a") == {}
    rig.do(acking(leased(rig, "a"), "A"))
    rig.do(ask.DeleteGroup("g"))
    rig.settle()
    assert rig.read("res") == []
    with pytest.raises(Refused):
        rig.look(ask.queries.Topics(TOPIC))


def test_results_go_on_after_an_operator_deleted_or_purged_their_topic(rig: Rig) -> None:
    for empty in (ask.DeleteTopic(TOPIC), ask.PurgeTopic(TOPIC)):
        rig.do(acking(leased(rig, "a"), "A"))
        rig.do(empty)
        assert texts(rig, "a") == {}
    rig.do(acking(leased(rig, "a"), "A"))
    assert texts(rig, "a") == {"a": "A"}


def test_the_size_limit_of_its_topic_bounds_what_a_group_keeps(rig: Rig) -> None:
    rig.do(ask.UpdateTopic(TOPIC, 0, None, (("bytes_max", 1 << 20),)))
    for number in range(10):
        rig.do(acking(leased(rig, f"m{number}"), "x" * (200 << 10)))
    rig.advance(2 * MINUTE)
    assert 0 < (rig.look(ask.queries.Topics(TOPIC))[0].bytes or 0) <= 1 << 20
    assert {*texts(rig, "m0", "m9")} == {"m9"}


# ── Looking ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_answer_has_at_least_one_result_and_ends_at_its_limit_of_bytes(rig: Rig) -> None:
    rig.do(acking(leased(rig, *"abc"), *["x" * 1000] * 3))
    some = rig.look(ResultsPiece("g", ("a", "b", "c"), 1))
    assert (len(some.rows), some.full) == (1, True)
    assert not rig.look(ResultsPiece("g", ("a", "b", "c"), 1 << 20)).full


def test_results_are_browsed_as_messages_and_are_not_lives_of_their_message(rig: Rig) -> None:
    rig.do(acking(leased(rig, "a"), "A", kind="text/plain"))
    (row,) = rig.browse(TOPIC).rows
    read = pb.Message.FromString(row[0])
    assert (read.message_id, read.body, read.tag) == ("a", b"A", "text/plain")
    assert refusal(rig.run(sending("x", topic=TOPIC))[0]) == "TOPIC_NOT_FOUND"


@pytest.mark.usefixtures("a_chunk_a_commit")
def test_the_last_of_several_results_in_one_generation_counts(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "MOVE_NAMES", 4)
    monkeypatch.setattr(places, "FRESH_MIN", 1)
    for texts_given in (("first",), ("second", "third"), ("last",)):
        rig.do(acking(leased(rig, *["a"] * len(texts_given)), *texts_given))
    rig.advance(2000)
    assert sum(len(value) // 16 for key, value in rig.read("res") if key[-2:] != b"\xff\xff") == 4
    assert texts(rig, "a") == {"a": "last"}


@pytest.mark.usefixtures("a_chunk_a_commit")
def test_results_are_found_in_generations_and_in_the_tail(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "MOVE_NAMES", 8)
    monkeypatch.setattr(places, "GENERATION_NAMES", 16)
    monkeypatch.setattr(places, "FRESH_MIN", 4)
    wanted = dict[str, str]()
    for turn in range(14):
        ids = [f"m{turn}-{number}" for number in range(3)]
        rig.do(acking(leased(rig, *ids, "again"), *ids, f"last {turn}"))
        wanted |= {each: each for each in ids}
        rig.advance(2000)
    assert len({key[:12] for key, _ in rig.read("res")}) > 2
    assert texts(rig, *wanted, "again", "nobody") == wanted | {"again": "last 13"}
    rig.restart()
    assert texts(rig, *wanted, "again", "nobody") == wanted | {"again": "last 13"}
    assert rig.findings() == []
    rig.advance(HOUR + 5 * MINUTE)
    assert rig.read("res") == []
