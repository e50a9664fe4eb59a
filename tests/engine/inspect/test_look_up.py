"""LookUp and the index under it: by message id and key, the newest first, in pieces, whatever the index looks like."""

import random
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.embedded.rules.inspect import look_up
from popmq_server.embedded.rules.topics import index
from popmq_server.embedded.store.keys import TOPIC_AT
from popmq_server.errors import Refused
from popmq_server.values.outgoing import Outgoing, hash8
from tests.engine.dead_letters import DEAD, died, piece
from tests.engine.rig import HOUR, MINUTE, SECOND, Rig, message, numbered, parsed, refusal

#: These tests make index blocks by sending one by one.
pytestmark = pytest.mark.usefixtures("a_chunk_a_commit")


def sent(rig: Rig, text: str, *keys: str, topic: str = "t", message_id: str = "") -> None:
    entries: tuple[Outgoing | Refused, ...] = (message(text, message_id, keys),)
    rig.do(ask.Send(topic, entries, bytes=1))


def look(rig: Rig, **asked: Any) -> operations.LookedUpPiece:
    chosen: dict[str, Any] = {"topic": "t", "message_id": "", "key": "", "messages_max": 4096, "bytes_max": 1 << 30}
    command = operations.LookUpPiece(**chosen | asked)
    answer: operations.LookedUpPiece = rig.do(command)
    return answer


def bodies(rig: Rig, **asked: Any) -> list[str]:
    """The bodies that a caller gets who reads to the end."""
    found: list[str] = []
    below: int | None = None
    while below != 0:
        answer = look(rig, below=below, **asked)
        found += [parsed(row[0]).body.decode() for row in answer.rows]
        below = answer.below
    return found


def widened(rig: Rig) -> int:
    """Small blocks are said together; how many wide blocks there are."""
    rig.advance(MINUTE)
    return len(rig.read("widx"))


# ── What is found ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S2.20")
def test_sent_messages_are_found_by_id_and_key_after_a_crash(rig: Rig) -> None:
    """The index block is in the commit of its messages; nothing is flushed later."""
    rig.topic()
    sent(rig, "a", "k", message_id="m")
    rig.crash()
    assert (bodies(rig, message_id="m"), bodies(rig, key="k")) == (["a"], ["a"])


@pytest.mark.mechanism("S2.19")
def test_a_message_is_found_by_its_id_and_by_each_of_its_keys(rig: Rig) -> None:
    rig.topic(queues=3)
    rig.send("x")
    sent(rig, "a", "k1", "k2", message_id="m")
    rig.send("y", "z")
    for asked in ({"message_id": "m"}, {"key": "k1"}, {"key": "k2"}):
        (row,) = look(rig, **asked).rows
        assert (parsed(row[0]).body, row[1], row[2], row[3]) == (b"a", rig.now, 1, 0)
    assert look(rig, message_id="k1").rows == look(rig, key="m").rows == []


def test_the_newest_come_first(rig: Rig) -> None:
    rig.topic(queues=2)
    for number in range(5):
        sent(rig, f"a{number}", "k")
    assert bodies(rig, key="k") == ["a4", "a3", "a2", "a1", "a0"]


def test_a_look_up_returns_messages_of_one_request_last_one_first(rig: Rig) -> None:
    rig.topic()
    entries = tuple(message(text, keys=("k",)) for text in "abc")
    rig.do(ask.Send("t", entries, bytes=1))
    assert bodies(rig, key="k") == ["c", "b", "a"]


def test_a_message_that_has_a_key_twice_is_found_once(rig: Rig) -> None:
    rig.topic()
    sent(rig, "a", "k", "k", message_id="k")
    assert bodies(rig, key="k") == ["a"]


def test_names_whose_hashes_are_equal_are_distinguished_by_their_text(rig: Rig) -> None:
    rig.topic()
    other = message("b")
    rig.do(ask.Send("t", (message("a"), other._replace(hashes=(hash8("a"),))), bytes=1))
    assert bodies(rig, message_id="a") == ["a"]


def test_a_look_up_between_two_times_finds_only_messages_stored_then(rig: Rig) -> None:
    rig.topic()
    times = []
    for number in range(6):
        sent(rig, f"a{number}", "k")
        times.append(rig.now)
        rig.skip(SECOND)
    assert bodies(rig, key="k", from_ms=times[2], until_ms=times[4]) == ["a4", "a3", "a2"]
    assert bodies(rig, key="k", until_ms=times[1] + 1) == ["a1", "a0"]
    assert bodies(rig, key="k", until_ms=times[0] - 1) == []
    assert bodies(rig, key="k", from_ms=times[5] + 1) == []


def test_an_answer_is_bounded_and_says_that_it_was_cut(rig: Rig) -> None:
    rig.topic()
    for number in range(5):
        sent(rig, f"a{number}", "k")
        rig.skip(SECOND)
    first = look(rig, key="k", messages_max=2)
    assert ([parsed(row[0]).body for row in first.rows], first.full) == ([b"a4", b"a3"], True)
    second = look(rig, key="k", messages_max=3, until_ms=first.rows[-1][1])
    assert [parsed(row[0]).body for row in second.rows] == [b"a3", b"a2", b"a1"]
    assert not look(rig, key="k", messages_max=5).full
    small = look(rig, key="k", bytes_max=1)
    assert (len(small.rows), small.full) == (1, True)


def test_dead_letters_are_found_by_id_and_key_until_they_are_redriven(rig: Rig) -> None:
    rig.pair()
    sent(rig, "a", "k")
    rig.reject(rig.pop())
    died(rig, "b")
    for asked in ({"message_id": "a"}, {"key": "k"}):
        (row,) = look(rig, topic=DEAD, **asked).rows
        assert (parsed(row[0]).dead_letter.topic, row[3]) == ("t", 0)
    piece(rig, offsets=(0,))
    assert look(rig, topic=DEAD, message_id="a").rows == []
    assert len(look(rig, topic=DEAD, message_id="b").rows) == 1


def test_the_copy_of_a_redriven_message_is_not_a_second_message(rig: Rig) -> None:
    rig.pair()
    died(rig, "a")
    piece(rig)
    assert bodies(rig, message_id="a") == ["a"]


def test_a_topic_that_does_not_exist_is_refused(rig: Rig) -> None:
    assert refusal(rig.run(operations.LookUpPiece("nobody", "a", "", 1, 1))[0]) == "TOPIC_NOT_FOUND"


# ── What cannot be read ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_damaged_message_is_stepped_over(rig: Rig) -> None:
    rig.topic()
    sent(rig, "a", "k")
    sent(rig, "b", "k")
    rig.damage(1)
    assert bodies(rig, key="k") == ["a"]
    rig.damage(1)  # as it was


def test_a_key_finds_messages_that_retention_kept_and_none_that_it_dropped(rig: Rig) -> None:
    rig.topic(keep_ms=HOUR)
    rig.group()
    entries = tuple(message(text, keys=("k",)) for text in ("held", "done"))
    rig.do(ask.Send("t", entries, bytes=1))
    sent(rig, "gone", "k")
    _, done, gone = rig.pop(invisible_ms=12 * HOUR)
    rig.ack([done, gone])
    for _ in range(2):
        rig.advance(MINUTE)
    rig.advance(3 * HOUR)
    rig.advance(MINUTE)
    assert len(rig.read("kept")) == 1
    assert bodies(rig, key="k") == ["held"]


# ── Pieces, and wide blocks ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("reads", [1, 3, 1000])
@pytest.mark.parametrize("steps", [1, 7, 1000])
def test_a_search_in_pieces_finds_what_one_would(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, steps: int, reads: int
) -> None:
    monkeypatch.setattr(look_up, "STEPS", steps)
    monkeypatch.setattr(look_up, "READS_MAX", reads)
    rig.topic(queues=2)
    expected = []
    for number in range(20):
        entries = tuple(message(f"a{number}.{place}", keys=("k",)) for place in range(3))
        rig.do(ask.Send("t", entries, bytes=1))
        expected += [f"a{number}.{place}" for place in range(3)]
        sent(rig, f"b{number}", "other")
    assert bodies(rig, key="k") == expected[::-1]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide blocks of ten index blocks or twenty names; blocks with four names are large."""
    monkeypatch.setattr(index, "BLOCKS_MAX", 10)
    monkeypatch.setattr(index, "NAMES_MAX", 20)
    monkeypatch.setattr(index, "NAMES_LARGE", 4)
    monkeypatch.setattr(index, "FRESH_MIN", 1)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 3, 1000])
def test_look_ups_find_the_same_before_and_after_blocks_are_said_together(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, small: None, steps: int
) -> None:
    monkeypatch.setattr(look_up, "STEPS", steps)
    rig.topic("u")
    rig.topic()
    for number in range(95):
        sent(rig, f"a{number}", f"k{number % 7}")
        sent(rig, f"u{number}", f"k{number % 7}", topic="u")
    before = [bodies(rig, key=f"k{key}") for key in range(7)]
    assert before[0] == [f"a{number}" for number in range(94, -1, -1) if number % 7 == 0]
    assert widened(rig) == 18
    assert all(len(value) > index.WIDE_HEAD.size for _, value in rig.read("widx"))
    assert [bodies(rig, key=f"k{key}") for key in range(7)] == before
    assert [bodies(rig, message_id=f"a{number}") for number in range(95)] == [[f"a{number}"] for number in range(95)]
    sent(rig, "new", "k0")
    assert bodies(rig, key="k0") == ["new", *before[0]]


def test_large_blocks_are_left_as_they_are_and_walked(rig: Rig, small: None) -> None:
    rig.topic()
    for number in range(10):
        rig.send(*numbered(f"a{number}.", 5))
    assert widened(rig) == 2
    assert {len(value) for _, value in rig.read("widx")} == {index.WIDE_HEAD.size}
    assert [bodies(rig, message_id=f"a{number}.{place}") for number, place in ((0, 0), (4, 4), (9, 2))] == [
        ["a0.0"],
        ["a4.4"],
        ["a9.2"],
    ]


def test_blocks_are_said_together_seconds_after_enough_of_them_were_stored(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, small: None
) -> None:
    monkeypatch.setattr(index, "FRESH_MIN", 25)
    rig.topic()
    quiet = rig.core.next_due_ms
    for number in range(24):
        sent(rig, f"a{number}")
    assert rig.core.next_due_ms == quiet
    sent(rig, "a24")
    assert rig.core.next_due_ms == rig.now + index.MERGE_EVERY_MS
    rig.advance(index.MERGE_EVERY_MS)
    assert len(rig.read("widx")) == 2
    assert rig.core.next_due_ms == quiet
    rig.restart()
    for number in range(25, 50):
        sent(rig, f"a{number}")
    rig.advance(index.MERGE_EVERY_MS)
    assert len(rig.read("widx")) == 5


def test_a_wide_block_goes_with_the_last_of_its_chunks(rig: Rig, small: None) -> None:
    rig.topic(by_age=True, keep_ms=HOUR)
    for number in range(25):
        sent(rig, f"a{number}")
    assert widened(rig) == 2
    rig.advance(30 * MINUTE)
    for number in range(25, 40):
        sent(rig, f"a{number}")
    assert widened(rig) == 4
    rig.advance(35 * MINUTE)
    rig.advance(MINUTE)
    assert len(rig.read("widx")) == 2
    assert bodies(rig, message_id="a20") == []
    assert bodies(rig, message_id="a39") == ["a39"]
    rig.advance(2 * HOUR)
    rig.advance(MINUTE)
    assert rig.read("widx") == []


@pytest.mark.slow
def test_a_deleted_topic_leaves_no_wide_blocks(rig: Rig, small: None) -> None:
    rig.topic()
    for number in range(25):
        sent(rig, f"a{number}")
    assert widened(rig) == 2
    rig.do(ask.DeleteTopic("t"))
    rig.settle()
    assert rig.read("widx") == []


@pytest.mark.slow
def test_random_names_in_random_requests_are_found_as_a_dict_would(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, small: None
) -> None:
    monkeypatch.setattr(look_up, "STEPS", 5)
    chance = random.Random(7)
    rig.topic(queues=3)
    expected: dict[str, list[str]] = {}
    for number in range(120):
        entries = []
        for place in range(chance.choice([1, 1, 1, 2, 6])):
            keys = tuple({f"k{chance.randrange(12)}" for _ in range(chance.randrange(3))})
            entries.append(message(f"a{number}.{place}", keys=keys))
            for key in keys:
                expected.setdefault(key, []).insert(0, f"a{number}.{place}")
        rig.do(ask.Send("t", tuple(entries), bytes=1))
        if chance.random() < 0.1:
            rig.advance(MINUTE)
    assert len(rig.read("widx")) > 3
    for key, texts in expected.items():
        assert bodies(rig, key=key) == texts


def test_positions_of_hits_are_places_in_the_queues(rig: Rig) -> None:
    rig.topic(queues=4)
    for number in range(8):
        rig.send(*numbered(f"a{number}.", 3))
    with rig.reading() as kv:
        for key, _ in kv.scan("idx"):
            topic_id, position = TOPIC_AT.unpack(key)
            spot = index.spot(kv, topic_id, position)
            assert spot is not None
            assert spot.position == position
            assert index.spot(kv, topic_id, position + 1) is None
        assert index.spot(kv, topic_id, index.end(kv, topic_id)) is None
