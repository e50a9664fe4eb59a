"""Batches of messages that are not neighbours: a run of the CheckPoint and a row of history for each queue, by bits."""

import itertools
import random

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.delivery import invalidated, lease_history
from popmq_server.embedded.rules.delivery.lease_history import ACKED, EXPIRED, RELEASED
from popmq_server.embedded.rules.topics import readers
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store import checkpoint
from popmq_server.embedded.store.checkpoint import SPAN_MAX, CheckPoint, Run
from popmq_server.embedded.store.keys import TAKEN_BLOCK, U64
from popmq_server.values.ids import GroupId, TopicId
from popmq_server.values.records import SweepWork, Void
from tests.engine.rig import MINUTE, Delivery, Rig
from tests.engine.traffic.traffic_fair import drained, limited, of, opened, send


def alternating(rig: Rig, count: int, tenants: int) -> None:
    """Messages of one busy tenant, with one of another tenant after every ten."""
    every = [
        next(of("acme" if number % 10 else f"other{number // 10 % tenants}", 1, number)) for number in range(count)
    ]
    send(rig, every)


def apart(rig: Rig, messages: int = 20, **fair: int) -> list[Delivery]:
    """A batch of one queue whose messages are not neighbours."""
    opened(rig, limited(**fair), queues=1)
    alternating(rig, 400, 40)
    rows = rig.pop(messages)
    assert len(rows) == messages
    return rows


def checkpoints(rig: Rig) -> list[CheckPoint]:
    return [checkpoint.decode(U64.unpack(key)[0], memoryview(value)) for key, value in rig.read("ck")]


def the_checkpoint(rig: Rig) -> CheckPoint:
    (ck,) = checkpoints(rig)
    return ck


def history(rig: Rig, offset: int) -> list[tuple[int, bool]]:
    """(how its lease ended, whether it was done) of each row that covers an offset."""
    with rig.reading() as kv:
        rows = lease_history.rows(kv, rig.core.state.ids[("t", "t")], 0, offset)
    return [(row.how, bool(row.done >> offset - row.first & 1)) for row in rows]


def test_a_batch_is_one_run_and_one_row_of_history_for_each_queue(rig: Rig) -> None:
    rows = apart(rig)
    ck = the_checkpoint(rig)
    assert [run.length for run in ck.runs] == [20]
    assert list(ck.runs[0].offsets) == sorted(row.offset for row in rows)
    rig.ack(rows)
    assert len(rig.read("hist")) == 1
    popped = {row.offset for row in rows}
    assert all(history(rig, offset) == ([(ACKED, True)] if offset in popped else []) for offset in range(400))
    assert rig.findings() == []


@pytest.mark.parametrize("fair", [{}, {"in_flight_max": 5}])
def test_a_batch_is_still_leased_after_a_start_and_each_of_its_messages_is_acked_alone(
    rig: Rig, fair: dict[str, int]
) -> None:
    rows = apart(rig, **fair)
    before = the_checkpoint(rig)
    rig.restart()
    assert the_checkpoint(rig) == before
    assert rig.findings() == []
    for row in rows[:-1]:
        assert rig.ack([row]) == [None]
    rig.advance(2 * MINUTE)
    (last,) = [row for row in rig.pop(400) if row.attempt == 2]
    assert last.body == rows[-1].body
    assert history(rig, rows[-1].offset) == [(EXPIRED, False)]
    assert history(rig, rows[0].offset) == [(EXPIRED, True)]
    assert rig.findings() == []


def test_what_is_released_of_a_batch_comes_again_and_only_that(rig: Rig) -> None:
    rows = apart(rig)
    back, done = rows[3:17:2], [*rows[:3], *rows[4:17:2], *rows[17:]]
    rig.release(back, delay_ms=MINUTE)
    rig.ack(done)
    assert (RELEASED, False) in history(rig, back[0].offset)
    assert history(rig, done[0].offset) == [(ACKED, True)]
    backoff = the_checkpoint(rig)
    assert sorted(offset for run in backoff.runs for offset in run.offsets) == sorted(row.offset for row in back)
    rig.restart()
    assert rig.findings() == []
    rig.advance(2 * MINUTE)
    again = {row.body: row.attempt for row in rig.pop(400)}
    assert {body for body, attempt in again.items() if attempt == 2} == {row.body for row in back}
    assert rig.findings() == []


def test_what_a_reset_made_void_is_what_lies_at_or_behind_its_bound(rig: Rig) -> None:
    apart(rig)
    ck, state = the_checkpoint(rig), rig.core.state
    (run,) = ck.runs
    tx = Tx(state, rig.store, rig.now)
    for bound in range(run.first, run.first + run.span + 2):
        state.sweeps[(ck.group_id, ck.topic_id)] = SweepWork(voids=(Void(ck.ck_id + 1, 0, (bound,)),))
        void = invalidated.of_checkpoint(state, ck)
        assert [offset for place, offset in enumerate(run.offsets) if void >> place & 1] == [
            offset for offset in run.offsets if offset >= bound
        ]
    tx.abort()


def test_after_a_reset_the_batch_is_refused_and_all_comes_again(rig: Rig) -> None:
    rows = apart(rig)
    rig.do(ask.ResetOffsets("t", "g", to=("EARLIEST", 0)))
    assert all(rig.ack(rows))
    rig.settle()
    assert len(set(drained(rig, 64))) == 400
    assert rig.findings() == []


def test_messages_far_apart_are_runs_of_their_own(rig: Rig) -> None:
    opened(rig, queues=1)
    send(rig, of("acme", 2 * SPAN_MAX), of("bolt", 10))
    for _ in range(12):  # a Pop reads some messages ahead
        rig.ack(rig.pop(1))
    rows = rig.pop(40)
    assert {row.body[:4] for row in rows} == {"acme", "bolt"}
    ck = the_checkpoint(rig)
    assert len(ck.runs) == 2
    assert all(run.span <= SPAN_MAX for run in ck.runs)
    rig.ack(rows)
    assert rig.findings() == []


@pytest.mark.parametrize("keys", [(), (b"12345678", b"abcdefgh", b"87654321", b"hgfedcba")])
def test_a_sparse_checkpoint_comes_back_as_it_was_stored_and_others_are_stored_as_before(
    keys: tuple[bytes, ...],
) -> None:
    runs = (Run(3, 70, 3, 1, bits=0b10011), Run(4, 9, 1, 1))
    sparse = CheckPoint(
        ck_id=5,
        group_id=GroupId(1),
        topic_id=TopicId(2),
        kind=0,
        nonce=3,
        popped_ms=4,
        runs=runs,
        members=4,
        chunks=((0, 0), (3, 90)),
        client="c",
        fair_keys=keys,
    )
    raw = checkpoint.encode(sparse)
    assert raw[0] == checkpoint.VERSION_SPARSE
    assert checkpoint.decode(5, memoryview(raw)) == sparse
    plain = checkpoint.encode(CheckPoint(**{**vars(sparse), "runs": (Run(3, 70, 4, 1),)}))
    assert plain[0] == (checkpoint.VERSION_FAIR if keys else checkpoint.VERSION)


@pytest.mark.parametrize("seed", range(20))
def test_bits_of_passed_offsets_say_what_the_offsets_say(rig: Rig, seed: int) -> None:
    opened(rig, queues=1)
    chance, passed, end, state = random.Random(seed), set[int](), 3 * TAKEN_BLOCK, rig.core.state
    tx, where = Tx(state, rig.store, rig.now), (*next(iter(state.stat)), 0)
    state.queue_max[where[1:]] = end + TAKEN_BLOCK
    for _ in range(6):
        first = chance.randrange(end)
        bits = chance.getrandbits(chance.choice([1, 30, TAKEN_BLOCK])) | 1
        new = {first + at for at in checkpoint.members_of(bits)}
        assert readers.pass_over(tx, where, (), [(first, bits)]) == len(new - passed)
        passed |= new
        assert {offset for offset in range(end + TAKEN_BLOCK) if readers.has_passed(state, where, offset)} == passed
        begin, asked = chance.randrange(end), chance.getrandbits(chance.choice([1, 64, 2 * TAKEN_BLOCK]))
        among = {begin + at for at in checkpoint.members_of(asked)}
        found = readers.passed_of(state, where, begin, asked)
        assert {begin + at for at in checkpoint.members_of(found)} == among & passed
    tx.abort()


def test_a_block_of_history_without_sparse_rows_is_as_earlier_releases_read_it(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    rig.ack(rig.pop())
    assert {value[0] for _, value in rig.read("hist")} == {1}
    rig.do(ask.DeleteGroup("g"))
    rig.do(ask.DeleteTopic("t"))
    rig.settle()
    rig.ack(apart(rig))
    assert {value[0] for _, value in rig.read("hist")} == {2}


def test_runs_tell_the_offsets_of_their_members() -> None:
    run = Run(0, 10, 1, 1).of_places(10, 0b1101000)
    assert (run.first, run.length, list(run.offsets), run.span) == (13, 3, [13, 15, 16], 4)
    assert [run.offset(place) for place in range(3)] == [13, 15, 16]
    assert [run.places(inside) for inside in (0, 0b1, 0b110, 0b111)] == [0, 0b1, 0b1100, 0b1101]
    neighbours = run.of_places(13, 0b1110)
    assert (neighbours.first, neighbours.length, neighbours.bits) == (14, 3, 0)
    assert list(itertools.chain(neighbours.offsets)) == [14, 15, 16]
