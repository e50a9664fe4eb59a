"""Peek: what the next Pop would deliver, and nothing changes by looking."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.embedded.rules.delivery import pick
from popmq_server.embedded.store.keys import DATABASES
from popmq_server.values.limits import QUEUES_PRIORITY
from popmq_server.values.message import Extra
from popmq_server.values.outgoing import Outgoing
from tests.engine.dead_letters import DEAD, died, piece
from tests.engine.rig import HOUR, MINUTE, Rig, message, numbered, parsed, refusal

Seen = list[tuple[str, int, int, int]]


def seen(rows: Any) -> Seen:
    """Body, queue, offset, attempt of each row."""
    return [(parsed(row[0]).body.decode(), *row[2:5]) for row in rows]


def peek(rig: Rig, topic: str = "t", group: str = "g", messages: int = 32, **asked: Any) -> Seen:
    begins: dict[int, int] | None = None
    while True:
        answer: operations.PeekedPiece = rig.do(
            operations.PeekPiece(topic, group, messages, 1 << 20, begins=begins, **asked)
        )
        if answer.begins is None:
            return seen(answer.rows)
        begins = answer.begins


def popped(rig: Rig, topic: str = "t", group: str = "g", messages: int = 32, **asked: Any) -> Seen:
    return seen(rig.popped(topic, group, max_messages=messages, **asked).rows)


def everything(rig: Rig) -> dict[str, list[tuple[bytes, bytes]]]:
    return {name: rig.read(name) for name in DATABASES}


def send(rig: Rig, *messages: Outgoing, topic: str = "t") -> None:
    rig.do(ask.Send(topic, messages, bytes=1))


def test_peek_shows_the_messages_of_the_next_pop_repeatedly(rig: Rig) -> None:
    """Turns of rotation, every fifth pop that begins with the retry topic, and attempts included."""
    rig.topic(queues=3)
    rig.group()
    for number in range(40):
        rig.send(f"m{number}")
    rig.release(rig.pop(10), delay_ms=0)
    attempts = set()
    for _ in range(12):
        first, second = peek(rig, messages=3), peek(rig, messages=3)
        assert first == second == popped(rig, messages=3)
        attempts |= {row[3] for row in first}
    assert attempts == {1, 2}, "some of them were tried before"


def test_peek_changes_no_byte_and_commits_nothing(rig: Rig) -> None:
    rig.topic(queues=2)
    rig.group()
    rig.pop()
    for text in numbered("m", 6):
        rig.send(text)
    rig.release(rig.pop(2), delay_ms=0)
    before, turns = everything(rig), rig.core.state.turns.committed()
    for _ in range(5):
        committed = rig.commit(operations.PeekPiece("t", "g", 32, 1 << 20))
        assert (committed.wrote, committed.woken) == (False, set())
    assert (everything(rig), rig.core.state.turns.committed()) == (before, turns)
    assert rig.numbers().in_flight == 0


def test_a_group_that_has_not_named_the_topic_sees_where_it_would_start_and_is_not_bound(rig: Rig) -> None:
    rig.topic(queues=2)
    rig.group("first")
    rig.group("last", start_from="LATEST")
    rig.send("a")
    assert [row[0] for row in peek(rig, group="first")] == ["a"]
    assert peek(rig, group="last") == []
    rig.send("b")
    assert peek(rig, group="last") == [], "a look did not fix its start"
    assert rig.popped("t", "last").rows == []
    rig.send("c")
    assert [row[0] for row in peek(rig, group="last")] == ["c"]


def test_peek_does_not_show_messages_that_are_leased_or_in_backoff(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b", "c")
    rows = rig.pop(2)
    rig.release(rows[:1], delay_ms=HOUR)
    assert [row[0] for row in peek(rig)] == ["c"]
    rig.advance(MINUTE)
    assert sorted(peek(rig)) == [("b", 0, 1, 2), ("c", 0, 2, 1)]


@pytest.mark.slow
def test_peek_has_the_limits_of_a_pop(rig: Rig) -> None:
    rig.pair(in_flight_max=2)
    rig.send("a", "b", "c")
    assert len(peek(rig)) == 2
    rig.pop()
    assert peek(rig) == []
    rig.topic("u")
    rig.send("x" * 1000, "y" * 1000, topic="u")
    assert len(rig.do(operations.PeekPiece("u", "g", 32, 1)).rows) == 1


def test_a_filter_is_asked_for_or_is_the_groups_own_and_is_not_fixed_by_a_look(rig: Rig) -> None:
    rig.topic()
    rig.group()
    send(rig, message("a", tag="red"), message("b", tag="blue"))
    assert [row[0] for row in peek(rig, filter=("tag", "blue"))] == ["b"]
    assert [row[0] for row in peek(rig, filter=("tag", "red"))] == ["a"]
    rig.pop(filter=("tag", "red"))
    send(rig, message("c", tag="red"), message("d", tag="blue"))
    assert [row[0] for row in peek(rig)] == ["c"]
    refused = rig.run(
        operations.PeekPiece("t", "g", 1, 1, ("tag", "blue")), operations.PeekPiece("t", "g", 1, 1, ("sql92", "("))
    )
    assert [refusal(result) for result in refused] == ["FILTER_CONFLICT", "FILTER_INVALID"]


def test_a_sparse_filter_is_looked_for_in_pieces(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pick, "SCAN_UNITS_MAX", 7)
    rig.topic(queues=2)
    rig.group()
    for number in range(40):
        send(rig, message(f"m{number}", tag="blue"))
    send(rig, message("a", tag="red"))
    assert rig.do(operations.PeekPiece("t", "g", 32, 1 << 20, ("tag", "red"))).begins is not None
    assert [row[0] for row in peek(rig, filter=("tag", "red"))] == ["a"]
    assert peek(rig, filter=("tag", "green")) == []


def test_redriven_dead_letters_are_not_shown(rig: Rig) -> None:
    rig.pair()
    rig.group("h")
    died(rig, "a", "b")
    piece(rig, offsets=(0,))
    assert [row[0] for row in peek(rig, DEAD, "h")] == ["b"]
    assert [row[0] for row in peek(rig)] == ["a"]


@pytest.mark.slow
def test_a_damaged_message_is_stepped_over_and_not_counted(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    rig.send("b")
    rig.damage(0)
    assert [row[0] for row in peek(rig)] == ["b"]
    assert rig.numbers().quarantined == 0
    rig.damage(0)  # as it was


def test_a_priority_topic_is_looked_into_in_the_order_of_its_pops(rig: Rig) -> None:
    rig.do(ask.CreateTopic("p", QUEUES_PRIORITY, False, 72 * HOUR, type="PRIORITY"))
    rig.group()
    for number in range(60):
        send(rig, message(f"m{number}")._replace(extra=Extra(priority=number % 10)), topic="p")
    for _ in range(25):
        assert peek(rig, "p", messages=2) == peek(rig, "p", messages=2) == popped(rig, "p", messages=2)


def test_a_fifo_topic_is_looked_into_with_its_locks(rig: Rig) -> None:
    rig.do(ask.CreateTopic("f", 1, False, 72 * HOUR, type="FIFO"))
    rig.group()
    for text in ("a1", "b1", "a2", "c1", "a3", "b2"):
        data = pb.Message(message_id=text, body=text.encode(), message_group=text[0]).SerializeToString()
        send(rig, message(text)._replace(data=data, extra=Extra(text[0])), topic="f")
    for _ in range(4):
        assert peek(rig, "f", messages=1) == peek(rig, "f", messages=1) == popped(rig, "f", messages=1)
    rig.advance(MINUTE)
    assert peek(rig, "f") == peek(rig, "f") == popped(rig, "f")


def test_names_that_do_not_exist_are_refused(rig: Rig) -> None:
    rig.pair()
    refused = rig.run(operations.PeekPiece("nobody", "g", 1, 1), operations.PeekPiece("t", "nobody", 1, 1))
    assert [refusal(result) for result in refused] == ["TOPIC_NOT_FOUND", "GROUP_NOT_FOUND"]
