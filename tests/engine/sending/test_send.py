"""Send: what is stored where, what a look-up finds, and that a repeated request stores nothing."""

import itertools

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.sending.dedup import DEDUP_KEEP_MS
from popmq_server.embedded.rules.topics.chunk import (
    BLOCK_ENTRIES_MAX,
    CHUNK_BYTES_MAX,
    IDX_HEAD,
    IDX_RANGE,
)
from popmq_server.embedded.store.keys import CQ_ENTRY, CQ_KEY, TOPIC_AT, U64
from popmq_server.errors import invalid
from popmq_server.values.message import read_record, record
from popmq_server.values.outgoing import Outgoing, hash8, tag_hash
from tests.engine.rig import Rig, bodies, message, numbered, refusal, sending

# ── Chunks, blocks ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S2.04")
def test_one_commit_of_one_topic_is_three_puts_whatever_the_number_of_messages(rig: Rig) -> None:
    rig.topic(queues=1)
    rig.run(sending(*numbered("a", 100)), sending(*numbered("b", 100)))
    assert [len(rig.read(name)) for name in ("log", "cq", "idx")] == [1, 1, 1]


@pytest.mark.mechanism("S2.01")
def test_records_lie_back_to_back_and_the_queue_names_their_places(rig: Rig) -> None:
    topic = rig.topic(queues=2)
    rig.run(sending("a", "bb"), sending("ccc"))
    ((start, chunk),) = rig.read("log")
    found = {}
    for key, block in rig.read("cq"):
        _, queue, first = CQ_KEY.unpack(key)
        for place, (position, size, _) in enumerate(CQ_ENTRY.iter_unpack(block)):
            read = read_record(memoryview(chunk)[position : position + size], topic.topic_id)
            assert read is not None
            found[(queue, first + place)] = read
    assert sorted(found) == [(0, 0), (0, 1), (1, 0)]
    assert {stored_ms for stored_ms, _ in found.values()} == {rig.now}
    assert found[(1, 0)][1] == message("ccc").data
    assert U64.unpack(start)[0] == 0


@pytest.mark.mechanism("S2.07")
def test_more_than_a_mebibyte_becomes_more_chunks_and_nothing_is_lost_at_their_borders(rig: Rig) -> None:
    rig.topic(queues=2)
    rig.group()
    texts = ["x" * 400_000 + str(number) for number in range(9)]
    rig.run(sending(*texts[:7]), sending(*texts[7:]))
    sizes = [len(chunk) for _, chunk in rig.read("log")]
    assert len(sizes) >= 4
    assert max(sizes) <= CHUNK_BYTES_MAX + 40
    taken = [*bodies(rig.pop(max_bytes=16 << 20)), *bodies(rig.pop(max_bytes=16 << 20))]
    assert sorted(taken) == sorted(texts)


def test_a_message_larger_than_a_chunk_has_one_of_its_own(rig: Rig) -> None:
    rig.pair()
    rig.run(sending("small"), sending("x" * (2 << 20)), sending("last"))
    assert [len(chunk) > CHUNK_BYTES_MAX for _, chunk in rig.read("log")] == [False, True, False]
    assert [row.offset for row in rig.pop(max_bytes=16 << 20)] == [0, 1, 2]


@pytest.mark.slow
def test_a_block_has_at_most_4096_entries(rig: Rig) -> None:
    rig.pair()
    rig.run(sending(*numbered("m", BLOCK_ENTRIES_MAX + 10)))
    assert sorted(len(block) // CQ_ENTRY.size for _, block in rig.read("cq")) == [10, BLOCK_ENTRIES_MAX]
    assert len(rig.pop(4096)) + len(rig.pop(4096)) == BLOCK_ENTRIES_MAX + 10


@pytest.mark.slow
def test_positions_go_on_over_topics_and_restarts(rig: Rig) -> None:
    rig.topic("t")
    rig.topic("u")
    rig.run(sending("a", topic="t"), sending("b", topic="u"))
    rig.restart()
    rig.send("c")
    starts = [(U64.unpack(key)[0], len(chunk)) for key, chunk in rig.read("log")]
    assert all(start + size <= after for (start, size), (after, _) in itertools.pairwise(starts))


def test_the_tag_of_a_message_stands_in_its_queue_entry(rig: Rig) -> None:
    rig.topic()
    rig.do(ask.Send("t", (message("a", tag="red"), message("b"))))
    ((_, block),) = rig.read("cq")
    tags = [tag.to_bytes(8, "big") for _, _, tag in CQ_ENTRY.iter_unpack(block)]
    assert tags == [tag_hash("red"), bytes(8)]


# ── Index blocks ─────────────────────────────────────────────────────────────────────────────────────────────────────


def looked_up(rig: Rig, topic_id: int, text: str) -> list[int]:
    """Positions of the messages with this id or key: the blocks walked newest first, each by halving."""
    found = []
    for key, block in reversed(rig.read("idx")):
        of, start = TOPIC_AT.unpack(key)
        if of != topic_id:
            continue
        _, size, ranges = IDX_HEAD.unpack_from(block)
        raw = block[IDX_HEAD.size + ranges * IDX_RANGE.size :]
        pairs = [raw[place : place + 12] for place in range(0, len(raw), 12)]
        assert pairs == sorted(pairs), "a block is sorted, or nothing can be found by halving"
        places = [int.from_bytes(pair[8:], "big") for pair in pairs if pair[:8] == hash8(text)]
        assert all(place < size for place in places)
        found += [start + place for place in places]
    return found


@pytest.mark.mechanism("S2.09")
def test_ids_and_keys_are_found_by_walking_the_blocks(rig: Rig) -> None:
    topic = rig.topic(queues=2)
    rig.topic("other")
    rig.do(ask.Send("t", (message("a", "id-1", keys=("flight", "UA")), message("b", "id-2", keys=("flight",)))))
    rig.do(ask.Send("other", (message("z", "id-1"),)))
    rig.do(ask.Send("t", (message("c", "id-3", keys=("UA",)),)))
    places: dict[tuple[int, int], int] = {}
    for key, block in rig.read("cq"):
        of, queue, first = CQ_KEY.unpack(key)
        if of == topic.topic_id:
            places |= {(queue, first + at): unit[0] for at, unit in enumerate(CQ_ENTRY.iter_unpack(block))}
    assert looked_up(rig, topic.topic_id, "id-1") == [places[(0, 0)]]
    assert sorted(looked_up(rig, topic.topic_id, "flight")) == [places[(0, 0)], places[(0, 1)]]
    assert sorted(looked_up(rig, topic.topic_id, "UA")) == [places[(0, 0)], places[(1, 0)]]
    assert looked_up(rig, topic.topic_id, "nobody") == []


# ── Request numbers ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_repeated_request_gets_the_first_answer_and_stores_nothing(rig: Rig) -> None:
    rig.pair(queues=4)
    first = rig.send("a", "b", producer="p", number=7)
    rig.send("between")
    again = rig.send("a", "b", producer="p", number=7)
    assert (again.queue, again.first, again.duplicate) == (first.queue, first.first, True)
    assert len(rig.pop()) == 3


def test_a_repetition_in_the_same_commit_is_one_too(rig: Rig) -> None:
    rig.pair()
    results = rig.run(*(sending("a", producer="p", number=1) for _ in range(3)))
    assert [result.duplicate for result in results] == [False, True, True]
    assert len(rig.pop()) == 1


def test_request_numbers_are_scoped_to_their_producer(rig: Rig) -> None:
    rig.pair()
    rig.send("a", producer="p", number=1)
    assert not rig.send("b", producer="q", number=1).duplicate
    assert not rig.send("c", producer="p", number=2).duplicate


def test_a_number_used_for_another_request_is_refused(rig: Rig) -> None:
    rig.pair()
    rig.topic("u")
    rig.send("a", producer="p", number=1)
    other_count = sending("a", "b", producer="p", number=1)
    other_topic = sending("a", topic="u", producer="p", number=1)
    assert [refusal(result) for result in rig.run(other_count, other_topic)] == ["REQUEST_NUMBER_REUSED"] * 2
    assert len(rig.pop()) == 1


def test_a_number_is_remembered_for_ten_minutes_exactly_and_over_restarts(rig: Rig) -> None:
    """A repetition does not prolong it."""
    rig.pair()
    rig.send("a", producer="p", number=1)
    rig.advance(DEDUP_KEEP_MS)
    rig.restart()
    assert rig.send("a", producer="p", number=1).duplicate
    rig.advance(1)
    assert not rig.send("a", producer="p", number=1).duplicate


def test_a_producer_that_goes_on_sending_forgets_its_own_old_numbers(rig: Rig) -> None:
    rig.topic()
    for number in range(1, 6):
        rig.send("a", producer="p", number=number)
    rig.skip(DEDUP_KEEP_MS + 1)
    for number in range(6, 9):
        rig.core.run([sending("a", producer="p", number=number)])
    assert len(rig.read("dedup")) == 3


def test_bad_entries_are_left_out_and_the_good_ones_stored(rig: Rig) -> None:
    rig.pair()
    bad = invalid("body is empty", field="messages[1].body")
    command = ask.Send("t", (message("a"), bad, message("c")), "p", 1)
    assert rig.do(command) == ask.Sent(0, 0, False)
    assert rig.do(command).duplicate
    assert bodies(rig.pop()) == ["a", "c"]


def test_a_request_of_bad_entries_only_stores_nothing_and_leaves_no_trace(rig: Rig) -> None:
    rig.topic()
    rig.do(ask.Send("t", (invalid("bad"),), "p", 1))
    assert [rig.read(name) for name in ("log", "cq", "idx", "dedup")] == [[], [], [], []]


def test_sends_to_a_dead_letter_topic_or_an_unknown_topic_are_refused(rig: Rig) -> None:
    rig.group()
    results = rig.run(sending("a", topic="%DLQ%g"), sending("a", topic="nowhere"))
    assert [refusal(result) for result in results] == ["TOPIC_NOT_FOUND"] * 2


@pytest.mark.mechanism("S2.11")
def test_a_send_wakes_every_group_of_its_topic_and_no_other(rig: Rig) -> None:
    rig.topic("t")
    rig.topic("u")
    assert rig.commit(sending("a")).woken == {(None, "t")}
    assert rig.commit(sending("a", producer="p", number=1)).woken == {(None, "t")}
    assert rig.commit(sending("a", producer="p", number=1)).woken == set()


# ── Records ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_record_with_any_bit_flipped_is_not_read() -> None:
    sent: Outgoing = message("hello")
    raw = b"".join(record(7, 123, sent.data))
    assert read_record(memoryview(raw), 7) == (123, sent.data)
    for place in range(len(raw)):
        for bit in range(8):
            bad = bytearray(raw)
            bad[place] ^= 1 << bit
            assert read_record(memoryview(bytes(bad)), 7) is None


def test_a_record_of_another_topic_or_cut_short_is_not_read() -> None:
    raw = b"".join(record(7, 123, b"abc"))
    assert read_record(memoryview(raw), 8) is None
    assert all(read_record(memoryview(raw[:stop]), 7) is None for stop in range(len(raw)))
