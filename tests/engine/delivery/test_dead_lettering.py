"""Dead letters have all the bytes of their messages: each commit writes a bounded number of these, whoever asks."""

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.embedded.loop.broker import EmbeddedEngine
from popmq_server.embedded.rules.delivery import deadletter
from popmq_server.embedded.rules.delivery.deadletter import DEAD_LETTER_BYTES_MAX
from popmq_server.embedded.rules.delivery.revive import REVIVE_MEMBERS_MAX
from popmq_server.embedded.rules.topics import topic
from popmq_server.embedded.state.tx import Tx
from popmq_server.errors import Later
from popmq_server.monitoring.metrics import Metrics
from popmq_server.options import Options
from popmq_server.values.message import Extra
from popmq_server.values.outgoing import Outgoing
from tests.engine.conftest import MakeRig
from tests.engine.pull_steps import RETRY, commit, pull, pulling
from tests.engine.rig import MINUTE, SECOND, Delivery, Rig, deliveries, message, refusal, refusals
from tests.engine.traffic.traffic import group
from tests.known import known

LARGE = 1 << 20
COUNT = 20


class Staged:
    """Bytes that each commit stored."""

    def __init__(self) -> None:
        self.commits: list[int] = [0]

    @property
    def most(self) -> int:
        return max(self.commits)


@pytest.fixture
def staged() -> Iterator[Staged]:
    seen, flush = Staged(), topic.flush

    def counting(tx: Tx) -> None:
        requests = [request for staged in tx.state.staged.values() for request in staged]
        seen.commits[-1] += sum(len(one.data) for request in requests for one in request.messages)
        flush(tx)

    with mock.patch.object(topic, "flush", counting):
        yield seen


def leased(rig: Rig, *, groups: int = 0, count: int = COUNT, size: int = LARGE, **settings: object) -> list[Delivery]:
    """A batch of large messages under one lease; of so many message groups."""
    rig.do(ask.CreateTopic("t", 1, False, 72 * 60 * MINUTE, "FIFO" if groups else "NORMAL"))
    rig.group("g", **settings)
    for number in range(count):
        group = f"mg{number % groups}" if groups else ""
        entry = message("x" * size, str(number))
        data = entry.data + (bytes((6 << 3 | 2, len(group))) + group.encode() if groups else b"")
        sent = Outgoing(data, entry.tag_hash, entry.hashes, str(number), Extra(message_group=group) if groups else None)
        rig.do(ask.Send("t", (sent,), "", 0, len(data)))
    popped = rig.do(ask.Pop("t", "g", max_messages=4096, max_bytes=1 << 30, invisible_ms=SECOND))
    rows = deliveries(popped)
    assert len(rows) == count
    return rows


def settle(rig: Rig, staged: Staged) -> None:
    while rig.due:
        staged.commits.append(0)
        rig.run()


@pytest.mark.slow
def test_leases_that_end_write_a_bounded_number_of_dead_letter_bytes_in_each_commit(rig: Rig, staged: Staged) -> None:
    leased(rig, max_attempts=1)
    staged.commits = [0]
    rig.skip(SECOND)
    settle(rig, staged)
    assert LARGE < staged.most <= DEAD_LETTER_BYTES_MAX + LARGE
    assert [letter.message_id for letter in rig.dead()] == [str(number) for number in range(COUNT)]


@pytest.mark.slow
def test_a_message_that_is_larger_than_the_bound_is_dead_lettered_alone(rig: Rig, staged: Staged) -> None:
    leased(rig, count=3, size=deadletter.DEAD_LETTER_BYTES_MAX + 10, max_attempts=1)
    staged.commits = [0]
    rig.skip(SECOND)
    settle(rig, staged)
    assert staged.most < 2 * DEAD_LETTER_BYTES_MAX
    assert len(rig.dead()) == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["reject", "release"])
def test_a_client_that_rejects_many_large_ones_gets_them_done_by_several_commits(
    make_rig: MakeRig, staged: Staged, kind: str
) -> None:
    """A command rejects the messages that fit into a commit; the broker repeats it for the others, then answers."""
    rig = make_rig()
    rows, done = leased(rig, max_attempts=1), 0
    staged.commits = [0]
    while rows:
        staged.commits.append(0)
        results = rig.change(rows, kind)
        left = [row for row, result in zip(rows, results, strict=True) if isinstance(result, Later)]
        assert len(left) < len(rows)
        assert all(result[1] for result in results if not isinstance(result, Later))
        rows, done = left, done + len(rows) - len(left)
    assert staged.most <= DEAD_LETTER_BYTES_MAX + LARGE
    assert (done, len(rig.dead())) == (COUNT, COUNT)


@pytest.mark.slow
def test_requests_of_one_commit_batch_share_the_bound(rig: Rig, staged: Staged) -> None:
    rows = leased(rig, max_attempts=1)
    staged.commits.append(0)
    rejects = [ask.ChangeInvisibleTime("g", (ask.Change(row.handle, "reject"),)) for row in rows]
    results = [result for (result,) in rig.run(*rejects)]
    assert refusals(results).count("BUSY") == COUNT - len(rig.dead())
    assert staged.commits[-1] <= DEAD_LETTER_BYTES_MAX + LARGE


def pulled_by_g(rig: Rig) -> tuple[ask.SentBack, ...]:
    """Twenty large messages that group g has pulled and cannot do."""
    pulling(rig)
    for number in range(COUNT):
        entry = message("x" * LARGE, str(number))
        rig.do(ask.Send("t", (entry,), "", 0, len(entry.data)))
    commit(rig, COUNT)
    return tuple(ask.SentBack(0, offset, reject=True) for offset in range(COUNT))


@pytest.mark.slow
def test_a_consumer_that_sends_back_many_large_ones_for_good_gets_them_done_by_several_commits(
    rig: Rig, staged: Staged
) -> None:
    left, done = pulled_by_g(rig), 0
    staged.commits = [0]
    while left:
        staged.commits.append(0)
        results = rig.do(ask.SendBack("t", "g", left))
        done += sum(result == (rig.now, True) for result in results)
        left = tuple(one for one, result in zip(left, results, strict=True) if isinstance(result, Later))
    assert staged.most <= DEAD_LETTER_BYTES_MAX + LARGE
    assert (done, len(rig.dead())) == (COUNT, COUNT)


@pytest.mark.slow
def test_an_entry_that_is_sent_back_twice_in_a_large_request_is_dead_lettered_once(rig: Rig) -> None:
    left = tuple(one for one in pulled_by_g(rig) for _ in range(2))
    rig.do(ask.SendBack("t", "g", tuple(one._replace(reject=False, delay_ms=0) for one in left[::2])))
    numbers = [row[3] for row in pull(rig, 0, topic=RETRY, max_messages=COUNT, max_bytes=1 << 30).rows]
    left = tuple(ask.SentBack(0, number, True, reject=True) for number in numbers for _ in range(2))
    told: list[str] = []
    while left:
        results = rig.do(ask.SendBack("t", "g", left))
        told += [refusal(result) for result in results if not isinstance(result, Later)]
        left = tuple(one for one, result in zip(left, results, strict=True) if isinstance(result, Later))
    assert sorted(told) == [""] * COUNT + ["MESSAGE_NOT_FOUND"] * COUNT
    assert len(rig.dead()) == COUNT


@pytest.mark.slow
async def test_the_broker_asks_again_until_each_message_that_was_sent_back_is_done(tmp_path: Path) -> None:
    broker = EmbeddedEngine(Options(tmp_path / "data", max_size=1 << 28, sync="none"), FakeClock(), Metrics())
    await broker.execute(ask.CreateTopic("t", 1, False, 72 * 60 * MINUTE))
    await broker.execute(group("g", 3))
    await broker.set_consume_mode(ask.SetConsumeMode("t", "g", "PULL"))
    for number in range(COUNT):
        entry = message("x" * LARGE, str(number))
        await broker.execute(ask.Send("t", (entry,), "", 0, len(entry.data)))
    back = tuple(ask.SentBack(0, offset, reject=True) for offset in range(COUNT))
    results = await broker.execute(ask.SendBack("t", "g", back))
    await broker.close()
    assert [isinstance(one, ask.Changed) and one.dead_lettered for one in results] == [True] * COUNT


@pytest.mark.slow
def test_resumes_that_reject_many_stopped_messages_share_the_bound(rig: Rig, staged: Staged) -> None:
    """Nothing of a message group that found no place in the commit has changed; asked again it is done."""
    rows = leased(rig, groups=COUNT, max_attempts=1, stop_on_failure=True)
    rig.release(rows, reason="broken")
    left = [ask.ResumeMessageGroup("t", "g", f"mg{number}", True) for number in range(COUNT)]
    staged.commits = [0]
    while left:
        staged.commits.append(0)
        results = rig.run(*left)
        assert set(results) <= {True, False}
        assert rig.numbers().stopped == sum(results) == COUNT - len(rig.dead())
        left = [one for one, more in zip(left, results, strict=True) if more]
    assert staged.most <= DEAD_LETTER_BYTES_MAX + LARGE
    assert len(rig.dead()) == COUNT


@pytest.mark.parametrize("groups", [1, 3, COUNT])
def test_expired_leases_of_a_fifo_batch_are_revived_in_pieces_in_its_order(
    rig: Rig, staged: Staged, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The effect equals that of one piece: the head of each message group has lost an attempt, and the order stays."""
    leased(rig, groups=groups, size=100, max_attempts=2)
    monkeypatch.setattr("popmq_server.embedded.rules.delivery.revive.REVIVE_MEMBERS_MAX", 3)
    rig.skip(SECOND)
    settle(rig, staged)
    assert rig.numbers().waiting == COUNT
    rows = rig.pop(4096)
    assert [int(row.message_id) for row in rows if int(row.message_id) % groups == 0] == list(range(0, COUNT, groups))
    assert {row.message_id: row.attempt for row in rows} == {
        str(number): 2 if number < groups else 1 for number in range(COUNT)
    }


def test_message_groups_of_a_fifo_batch_stay_locked_between_the_pieces_of_its_revive(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    leased(rig, groups=2, size=100)
    monkeypatch.setattr("popmq_server.embedded.rules.delivery.revive.REVIVE_MEMBERS_MAX", 3)
    rig.skip(SECOND)
    pieces = 0
    while known(rig.numbers().in_flight) > 3:
        rig.run()
        pieces += 1
        assert rig.run(ask.Pop("t", "g"))[0].rows == [] or rig.numbers().waiting == 0
    assert pieces >= 3


@pytest.mark.slow
def test_heads_of_a_fifo_batch_without_an_attempt_left_are_dead_lettered_in_bounded_commits(
    rig: Rig, staged: Staged
) -> None:
    leased(rig, groups=COUNT // 2, max_attempts=1)
    staged.commits = [0]
    rig.skip(SECOND)
    settle(rig, staged)
    assert staged.most <= DEAD_LETTER_BYTES_MAX + LARGE
    assert sorted(int(letter.message_id) for letter in rig.dead()) == list(range(COUNT // 2))
    rows = rig.popped(max_messages=4096, max_bytes=1 << 30).rows
    assert [row[4] for row in rows] == [1] * (COUNT // 2)


def test_a_piece_of_the_revive_has_at_most_1000_members() -> None:
    assert REVIVE_MEMBERS_MAX == 1000
