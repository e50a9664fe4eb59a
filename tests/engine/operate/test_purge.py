"""What is deleted is gone at once, and in the end nothing of it is left in any database."""

import itertools

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.operate import purge
from popmq_server.embedded.rules.topics.chunk import IDX_HEAD
from popmq_server.embedded.store.keys import DATABASES, TOPIC_AT, U64
from popmq_server.embedded.store.lmdb import Transaction
from tests.engine.rig import HOUR, MINUTE, SECOND, Rig, bodies, numbered, refusal

#: What a store has of its own, whatever was deleted.
KEPT = {"meta"}


def left(rig: Rig, *names: str) -> dict[str, int]:
    """How many entries each database has, of those that have any."""
    return {
        name: len(rig.read(name)) for name in DATABASES if name not in KEPT and name not in names and rig.read(name)
    }


def lived(rig: Rig) -> None:
    """A topic and a group with something in every database that deleting has to empty."""
    rig.topic(queues=2)
    rig.group(max_attempts=2)
    for text in numbered("m", 12):
        rig.send(text, producer="p", number=int(text[1:]) + 1)
    rig.attach(topic="t")
    rig.seal(1, max_messages=2)
    rig.seal(1, chunk=1, max_messages=2)
    rig.ack(rig.pop(1))
    rig.reject(rig.pop(1))
    rig.release(rig.pop(1), delay_ms=0)
    rig.release(rig.pop(1), delay_ms=HOUR, reason="later")
    rig.extend(rig.pop(2)[:1], HOUR)
    rig.advance(MINUTE)


def test_a_deleted_topic_leaves_nothing_but_the_group(rig: Rig) -> None:
    lived(rig)
    rig.do(ask.DeleteTopic("t"))
    rig.do(ask.DeleteTopic("%DLQ%g"))
    rig.advance(11 * MINUTE)  # request numbers go by their time
    assert left(rig) == {"name": 1, "group": 1, "own": 1, "due": 1}


@pytest.mark.mechanism("D.62")
@pytest.mark.slow
def test_a_deleted_group_leaves_nothing_but_the_topic(rig: Rig) -> None:
    lived(rig)
    rig.do(ask.DeleteGroup("g"))
    rig.advance(11 * MINUTE)
    topic = {"name", "topic", "log", "cq", "idx", "tstat"}
    assert set(left(rig)) <= topic | {"hist", "mark"}  # how leases ended goes with the chunks of the topic
    assert {len(rig.read(name)) for name in ("name", "topic")} == {1}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["topic", "group"])
def test_a_crash_between_any_two_pieces_of_a_purge_harms_nothing(
    rig: Rig, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge, "PURGE_KEYS_MAX", 2)
    lived(rig)
    rig.do(ask.DeleteTopic("t") if kind == "topic" else ask.DeleteGroup("g"))
    pieces = 0
    while rig.read("purge"):
        rig.crash()
        rig.run()
        assert rig.findings() == []
        pieces += 1
    assert pieces > 5
    assert left(rig, "name", "topic", "group", "log", "cq", "idx", "hist", "mark", "dedup", "own", "due", "tstat") == {}


@pytest.mark.mechanism("D.37", "I.22")
def test_a_topic_and_group_created_again_have_no_messages_or_numbers_of_the_old_ones(rig: Rig) -> None:
    lived(rig)
    rig.run(ask.DeleteTopic("t"), ask.DeleteGroup("g"))
    rig.topic()
    rig.group()
    assert rig.pop() == []
    numbers = rig.numbers()
    assert (numbers.ready, numbers.in_flight, numbers.retry, numbers.backoff, numbers.dead) == (0, 0, 0, 0, 0)
    assert (numbers.acked, numbers.owners) == (0, 0)
    rig.send("new")
    assert [(row.body, row.offset, row.attempt) for row in rig.pop()] == [("new", 0, 1)]


def test_handles_of_a_deleted_group_lapse_when_it_is_created_again(rig: Rig) -> None:
    rig.pair()
    rig.send("old")
    rows = rig.pop()
    rig.run(ask.DeleteGroup("g"))
    rig.group()
    assert refusal(rig.ack(rows)[0]) in ("HANDLE_LAPSED", "INVALID_HANDLE")
    rig.settle()
    assert refusal(rig.ack(rows)[0]) == "HANDLE_LAPSED"
    assert bodies(rig.pop()) == ["old"]


@pytest.mark.parametrize("lapsed", [False, True])
def test_an_owner_outlives_a_topic_that_it_reads(rig: Rig, lapsed: bool) -> None:
    rig.topic("t")
    rig.topic("u")
    rig.group()
    for topic in "tu":
        rig.send("a", topic=topic)
    rig.attach(lease_ms=10 * SECOND)
    rig.seal(1, topic="t")
    rig.seal(1, topic="u")
    if lapsed:
        rig.advance(HOUR)
    rig.do(ask.DeleteTopic("t"))
    rig.settle()
    assert rig.do(ask.RenewOwner("g", "o", 1, MINUTE))[0] == 1
    rig.settle()
    assert rig.ack_up_to(1) == 1
    assert not rig.due


def test_a_lease_that_ends_in_a_deleted_group_no_longer_holds_its_chunk(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.topic(keep_ms=MINUTE)
    rig.group()
    rig.send(*numbered("m", 20))
    for place in range(20):
        rig.popped(max_messages=1, invisible_ms=HOUR if place < 10 else SECOND)
    rig.skip(SECOND)
    monkeypatch.setattr(purge, "PURGE_KEYS_MAX", 10)  # the first ones go with the group, the others' time is over
    rig.do(ask.DeleteGroup("g"))
    for _ in range(4):
        rig.advance(MINUTE)
    assert rig.read("log") == []


def test_a_purge_that_fails_is_postponed_and_delays_no_other(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It once was tried again at once, for ever, in the turn of the command that had come."""
    lived(rig)
    step, calls = purge.step, []

    def broken(*asked: object) -> None:
        calls.append(asked)
        raise RuntimeError("broken")

    monkeypatch.setattr(purge, "step", broken)
    rig.do(ask.DeleteTopic("t"))
    rig.topic("u")
    rig.send("still served", topic="u")
    assert len(calls) == 1
    monkeypatch.setattr(purge, "step", step)
    rig.advance(3 * MINUTE)
    assert not rig.read("purge")


def test_a_group_deleted_in_the_commit_that_writes_its_dead_letter_leaves_no_chunk(rig: Rig) -> None:
    rig.pair()
    rig.send("m")
    rows = rig.pop()
    rig.run(
        ask.ChangeInvisibleTime("g", (ask.Change(rows[0].handle, "reject"),)),
        ask.DeleteGroup("g"),
        ask.DeleteTopic("t"),
    )
    rig.advance(11 * MINUTE)
    assert left(rig) == {}


def test_the_copies_of_a_chunk_go_with_it_and_each_counts_for_the_piece(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece looks at the copies of its own chunks, however many others have."""
    monkeypatch.setattr(purge, "PURGE_KEYS_MAX", 10)
    topic, other = rig.topic("t"), rig.topic("other")

    def remove(kv: Transaction, rows: list[tuple[str, bytes]]) -> None:
        for name, key in rows:
            kv.delete(name, key)

    def plant(kv: Transaction) -> None:
        """Chunks as retention leaves those that stay pinned: without a value in the log, their live records in kept."""
        for number in range(6):
            owner, position = (other if number == 5 else topic), 10_000 + 1000 * number
            kv.put("idx", TOPIC_AT.pack(owner.topic_id, position), IDX_HEAD.pack(rig.now, 1000, 0))
            for place in range(8):
                kv.put("kept", U64.pack(position + 100 * place), U64.pack(position) + b"record")

    rig.write(plant)
    rig.do(ask.DeleteTopic("t"))
    left = [len(rig.read("kept"))]
    while rig.due:
        rig.commit()
        left.append(len(rig.read("kept")))
    assert left[0] == 48
    assert left[-1] == 8
    planted = [(name, key) for name in ("idx", "kept") for key, _ in rig.read(name)]
    rig.write(lambda kv: remove(kv, planted))
    assert max(before - after for before, after in itertools.pairwise(left)) <= 16
