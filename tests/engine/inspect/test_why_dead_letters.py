"""Why: dead letters that speak for their message, FIFO topics, and what retention has dropped."""

from typing import Any

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.embedded.rules.delivery import lease_history
from popmq_server.embedded.store import history_rows
from popmq_server.values.message import Extra
from tests.engine.dead_letters import DEAD, died, piece
from tests.engine.lives import has, state, story, why
from tests.engine.rig import DAY, HOUR, MINUTE, SECOND, Rig, message

# ── Discarded dead letters ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_discard_has_a_row_of_history_that_older_releases_can_read(rig: Rig) -> None:
    rig.pair()
    died(rig, "a", reason=lease_history.DISCARDED_REASON)
    rig.do(operations.DiscardPiece("g"))
    assert story(rig) == ["sent", "popped", "rejected", "dead", "discarded"]
    rows = [row for key, value in rig.read("hist") for row in history_rows.read(key, value)]
    assert [(row.how, row.reason) for row in rows] == [
        (lease_history.REJECTED, lease_history.DISCARDED_REASON),
        (lease_history.DEAD, lease_history.DISCARDED_REASON),
    ]


def test_a_dead_letter_with_the_reason_of_a_discard_was_not_discarded(rig: Rig) -> None:
    rig.topic()
    rig.group(max_attempts=1)
    rig.send("a")
    rig.release(rig.pop(), reason=lease_history.DISCARDED_REASON)
    assert story(rig)[-1] == "dead"


# ── Dead letters that speak for their message ─────────────────────────────────────────────────────────────────────────


def test_why_finds_a_dropped_message_by_its_dead_letter(rig: Rig) -> None:
    rig.topic(by_age=True, keep_ms=HOUR)
    rig.group()
    rig.pop()
    died(rig, "a", reason="poison")
    rig.advance(2 * HOUR)
    rig.advance(2 * MINUTE)
    assert rig.browse("t").rows == []
    (one,) = why(rig, "a")
    assert (one.topic, one.queue, one.offset, one.stored_ms) == ("t", 0, 0, 0)
    assert (one.groups[0].state, one.groups[0].events[0].what) == ("dead", "dead")
    piece(rig)
    assert state(rig) == "retry"
    rig.ack(rig.pop())
    assert state(rig) == "acked"


def test_why_finds_a_dead_letter_whose_topic_was_deleted(rig: Rig) -> None:
    rig.pair()
    died(rig, "a")
    rig.do(ask.DeleteTopic("t"))
    rig.settle()
    assert state(rig) == "dead"
    has(rig, "topic 't' was deleted")
    rig.advance(SECOND)
    rig.topic()
    assert state(rig) == "dead"


def test_why_does_not_mix_a_dead_letter_with_messages_of_a_topic_created_again(rig: Rig) -> None:
    rig.pair()
    died(rig, "a")
    rig.do(ask.DeleteTopic("t"))
    rig.settle()
    rig.advance(SECOND)
    rig.topic()
    rig.pop()
    rig.send("a")
    new, old = why(rig, "a")
    assert [(one.stored_ms > 0, one.groups[0].state) for one in (new, old)] == [(True, "ready"), (False, "dead")]
    assert [event.what for event in new.groups[0].events] == ["sent"]


def test_why_shows_a_dead_letter_for_each_group_that_reads_its_topic(rig: Rig) -> None:
    rig.pair()
    rig.group("h")
    died(rig, "a")
    assert [one.topic for one in why(rig, "a")] == ["t"]
    assert [one.topic for one in why(rig, "a", topic=DEAD)] == [DEAD]
    rig.pop(topic=DEAD, group="h")
    lives = {one.topic: one for one in why(rig, "a")}
    assert {name: [group.state for group in one.groups] for name, one in lives.items()} == {
        "t": ["dead"],
        DEAD: ["leased"],
    }
    piece(rig)
    assert [one.topic for one in why(rig, "a")] == ["t"]


# ── FIFO, and what retention has dropped ─────────────────────────────────────────────────────────────────────────────


def in_order(rig: Rig, *texts: str, **settings: Any) -> None:
    """A FIFO topic with messages of the message groups that their first characters name."""
    rig.do(ask.CreateTopic("f", 1, False, 3 * DAY, type="FIFO"))
    rig.group("g", **settings)
    rig.pop(topic="f")
    for text in texts:
        data = pb.Message(message_id=text, body=text.encode(), message_group=text[0]).SerializeToString()
        rig.do(ask.Send("f", (message(text)._replace(data=data, extra=Extra(text[0])),), bytes=1))


def test_why_names_the_message_that_a_waiting_message_waits_for(rig: Rig) -> None:
    in_order(rig, "a1", "a2", "a3")
    rows = rig.pop(1, topic="f")
    rig.pop(topic="f")
    assert [state(rig, text) for text in ("a1", "a2", "a3")] == ["leased", "waiting", "waiting"]
    has(rig, "other messages of its message group are leased or in backoff", message_id="a3")
    rig.ack(rows)
    has(rig, "the next Pop gets it", "attempt 1", message_id="a2")
    has(rig, "come first, from offset 1 on", message_id="a3")


def test_why_shows_the_reason_of_a_message_that_stopped_its_message_group(rig: Rig) -> None:
    in_order(rig, "a1", "a2", max_attempts=1, stop_on_failure=True)
    rig.release(rig.pop(1, topic="f"), delay_ms=0, reason="no such account")
    assert (state(rig, "a1"), state(rig, "a2")) == ("stopped", "ready")
    has(rig, "no such account", "to resume it: popmq message-groups resume f g a", message_id="a1")


def test_why_tells_the_messages_of_a_half_kept_chunk_apart(rig: Rig) -> None:
    rig.topic(by_age=True, keep_ms=HOUR)
    rig.group()
    rig.group("h")
    rig.pop(group="h")
    rig.send("a", "b", "c")
    rows = rig.pop(2, invisible_ms=12 * HOUR)
    rig.ack(rows[1:])
    rig.advance(3 * HOUR)
    rig.advance(2 * MINUTE)
    assert len(rig.read("kept")) == 1
    assert [state(rig, text) for text in "abc"] == ["leased", "acked", "dropped"]
    assert [state(rig, text, "h") for text in "bc"] == ["dropped", "dropped"]
    rig.pop(group="h")
    assert state(rig, "c", "h") == "dropped"
