"""Rows of history in blocks: what they cost, that they come back as they were put, and what damage and retention do."""

import random

import pytest

from popmq_server.embedded.rules.delivery import lease_history
from popmq_server.embedded.rules.delivery.lease_history import ACKED
from popmq_server.embedded.store import history_rows
from popmq_server.embedded.store.history_rows import BLOCK_BYTES_MAX, SPAN_MAX, HistoryRow
from popmq_server.embedded.store.keys import HIST_KEY
from popmq_server.embedded.store.lmdb import Transaction
from tests.engine.rig import HOUR, MINUTE, SECOND, Rig, numbered

#: What the model allows for the history of a message that was popped and acked alone.
BYTES_MAX = 60


def stored_bytes(rig: Rig) -> int:
    with rig.reading() as kv:
        return rig.store.used_pages(kv) * rig.store.page_bytes


def told(rig: Rig, offset: int, queue: int = 0, topic: str = "t") -> list[HistoryRow]:
    topic_id = rig.core.state.ids[("t", topic)]
    with rig.reading() as kv:
        return lease_history.rows(kv, topic_id, queue, offset)


def add(rig: Rig, queue: int, row: HistoryRow) -> None:
    topic_id = rig.core.state.ids[("t", "t")]
    rig.write(lambda kv: history_rows.add(kv, topic_id, queue, row))


def drawn(chance: random.Random) -> HistoryRow:
    """Any row that the engine could write, and some that it would not."""
    length = chance.choice([1, 1, 1, 5, 32, 4096])
    covers = chance.choice([0, chance.randrange(1 << length) | 1 << length - 1 | 1]) if length > 1 else 0
    every = covers or (1 << length) - 1
    time = 1_700_000_000_000 + chance.randrange(10**9)
    return HistoryRow(
        chance.choice([1, 200, 70_000]),
        chance.randrange(2 * SPAN_MAX),
        length,
        chance.randrange(1, 1 << chance.choice([5, 20, 63])),
        chance.choice([0, 0, 1, 4096]),
        chance.randrange(1, 8),
        chance.choice([0, time - 5, time + 5]),
        chance.choice([0, time - 60_000, time + 60_000]),
        time,
        chance.choice([0, every, chance.randrange(1 << length) & every]),
        chance.choice(["", "c", "é" * 40]),
        chance.choice(["", "no luck", "x" * 4096]),
        chance.randrange(300),
        *chance.choice([(0, 0), (3, time), (65535, time - HOUR)]),
        chance.choice([0, time + HOUR]),
        covers,
    )


# ── What they cost ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("topics", [1, 3])
def test_the_history_of_a_message_popped_and_acked_alone_takes_at_most_60_bytes(rig: Rig, topics: int) -> None:
    names, count = [f"t{number}" for number in range(topics)], 1500
    rig.group()
    for name in names:
        rig.topic(name, 8)
        rig.pop(topic=name)
    for turn in range(count):
        rig.send("x", topic=names[turn % topics])
    before = stored_bytes(rig)
    for turn in range(count):
        rows = rig.pop(1, topic=names[turn % topics], client_id=f"host-{turn % 2}@01890a5d-ac96-774b-bcce")
        rig.skip(7)
        rig.ack(rows)
    assert stored_bytes(rig) - before <= BYTES_MAX * count


@pytest.mark.slow
def test_a_block_ends_with_its_bytes_and_with_its_span(rig: Rig) -> None:
    rig.pair()
    rig.send(*numbered("m", 400))
    for _ in range(400):
        rig.ack(rig.pop(1))
    blocks = rig.read("hist")
    assert len(blocks) < 5
    assert all(len(value) <= BLOCK_BYTES_MAX for _, value in blocks)
    for offset in (400, 400 + SPAN_MAX, 401 + SPAN_MAX):
        add(rig, 0, HistoryRow(1, offset, 1, 1, 0, ACKED, 0, 0, 5, 1, "", ""))
    begins = [HIST_KEY.unpack(key)[2] for key, _ in rig.read("hist")]
    assert begins[0] == 0
    assert begins[-1] in (400 + SPAN_MAX, 401 + SPAN_MAX)


# ── What comes back ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_rows_are_read_as_they_were_written_for_each_of_their_messages(rig: Rig, seed: int) -> None:
    rig.topic()
    chance, topic_id = random.Random(seed), rig.core.state.ids[("t", "t")]
    put: dict[tuple[int, int, int], HistoryRow] = {}

    def fill(kv: Transaction) -> None:
        for _ in range(80):
            row = drawn(chance)
            put[(row.first, row.ck_id, row.sub)] = row
            history_rows.add(kv, topic_id, 0, row)

    rig.write(fill)
    for offset in range(0, 3 * SPAN_MAX, 61):
        assert told(rig, offset) == [put[key] for key in sorted(put) if put[key].has(offset)]


def test_a_row_that_is_written_again_counts_as_it_was_written_last(rig: Rig) -> None:
    rig.topic()
    for reason in ("first", "last"):
        add(rig, 0, HistoryRow(1, 0, 1, 7, 0, ACKED, 0, 0, 5, 0, "c", reason))
    assert [row.reason for row in told(rig, 0)] == ["last"]


# ── Damage ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def damage(rig: Rig, key: bytes, value: bytes, place: int) -> None:
    """Flips a bit of a block."""
    raw = bytearray(value)
    raw[place] ^= 0x04
    rig.write(lambda kv: kv.put("hist", key, bytes(raw)))


@pytest.mark.parametrize("place", [0, 1, 5, 10, 16, 17, -12, -1])
def test_a_damaged_history_block_is_reported_by_fsck_and_harms_no_other(rig: Rig, place: int) -> None:
    rig.pair()
    rig.send("a", "b")
    a, b = rig.pop(client_id="client")
    rig.release([a], delay_ms=HOUR)
    ((key, value),) = rig.read("hist")
    damage(rig, key, value, place)
    assert any("the history of topic" in sentence for sentence in rig.findings())
    rig.release([b], delay_ms=HOUR)
    assert {row.client for row in told(rig, 1)} == {"client"}
    rig.write(lambda kv: kv.put("hist", key, value))


# ── Retention ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.usefixtures("a_chunk_a_commit")
def test_a_block_stays_while_it_speaks_of_a_message_that_stays_and_goes_with_the_last(rig: Rig) -> None:
    rig.topic(by_age=True, keep_ms=HOUR)
    rig.group()
    for text in "abc":
        rig.send(text)
        rig.ack(rig.pop(client_id=text))
        rig.skip(10 * SECOND)
    assert len(rig.read("hist")) == 1
    begin = rig.now
    while rig.now < begin + 2 * HOUR:
        rig.advance(SECOND * 30)
        for row in rig.browse("t").rows:
            assert [one.client for one in told(rig, row[3])] == ["abc"[row[3]]]
    assert (rig.read("log"), rig.read("hist")) == ([], [])


@pytest.mark.usefixtures("a_chunk_a_commit")
def test_a_block_goes_when_the_first_of_its_messages_is_the_last_to_go(rig: Rig) -> None:
    rig.topic(by_age=True, keep_ms=HOUR)
    rig.group()
    rig.send("held")
    (held,) = rig.pop(invisible_ms=3 * HOUR)
    rig.release([held], delay_ms=2 * HOUR)
    rig.send("b")
    rig.ack(rig.pop())
    for _ in range(90):
        rig.advance(MINUTE)
    assert len(rig.read("hist")) == 1
    rig.advance(HOUR)
    rig.ack(rig.pop())
    for _ in range(3):
        rig.advance(MINUTE)
    assert (rig.read("log"), rig.read("hist")) == ([], [])


# ── Many at once ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(12))
def test_rows_that_are_added_together_are_stored_as_one_by_one(rig: Rig, seed: int) -> None:
    rig.topic("t", 2)
    topic_id, chance = rig.core.state.ids[("t", "t")], random.Random(seed)

    def put(kv: Transaction) -> None:
        for _ in range(20):
            some = sorted((drawn(chance) for _ in range(chance.choice([1, 2, 40]))), key=lambda row: row.first)
            for row in some:
                history_rows.add(kv, topic_id, 0, row)
            history_rows.add_all(kv, topic_id, 1, some)

    rig.write(put)
    stored = [
        [(key[6:], value) for key, value in rig.read("hist") if HIST_KEY.unpack(key)[1] == queue] for queue in (0, 1)
    ]
    assert stored[0] == stored[1]


def test_an_ack_of_scattered_messages_puts_each_block_of_history_once(rig: Rig) -> None:
    rig.topic("t", 1)
    topic_id = rig.core.state.ids[("t", "t")]
    some = [
        drawn(random.Random(seed))._replace(first=3 * seed, length=1, done=1, reason="", covers=0) for seed in range(50)
    ]
    kv = rig.store.begin()
    before = kv.writes
    history_rows.add_all(kv, topic_id, 0, some)
    assert kv.writes - before == 1
    kv.commit()
