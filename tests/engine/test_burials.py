"""Dead letters have all the bytes of their messages: each commit writes a bounded number of these, whoever asks."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest

from popmq_server import commands as ask
from popmq_server import deadletter, topic
from popmq_server.deadletter import BURY_BYTES_MAX
from popmq_server.errors import Later
from popmq_server.message import Extra, Outgoing
from popmq_server.revive import REVIVE_MEMBERS_MAX
from popmq_server.tx import Tx
from tests.engine.conftest import MakeRig
from tests.engine.rig import MINUTE, SECOND, Delivery, Rig, deliveries, message, refusals

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
        requests = [request for staged in tx.staged.values() for request in staged]
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


def test_leases_that_end_bury_a_bounded_number_of_bytes_in_each_commit(rig: Rig, staged: Staged) -> None:
    leased(rig, max_attempts=1)
    staged.commits = [0]
    rig.skip(SECOND)
    settle(rig, staged)
    assert LARGE < staged.most <= BURY_BYTES_MAX + LARGE
    assert [letter.message_id for letter in rig.dead()] == [str(number) for number in range(COUNT)]


def test_a_message_that_is_larger_than_the_bound_is_buried_alone(rig: Rig, staged: Staged) -> None:
    leased(rig, count=3, size=deadletter.BURY_BYTES_MAX + 10, max_attempts=1)
    staged.commits = [0]
    rig.skip(SECOND)
    settle(rig, staged)
    assert staged.most < 2 * BURY_BYTES_MAX
    assert len(rig.dead()) == 3


@pytest.mark.parametrize("kind", ["reject", "release"])
def test_a_client_that_rejects_many_large_ones_gets_them_done_by_several_commits(
    make_rig: MakeRig, staged: Staged, kind: str
) -> None:
    """One command does what fits; the broker asks again for the others, before it answers."""
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
    assert staged.most <= BURY_BYTES_MAX + LARGE
    assert (done, len(rig.dead())) == (COUNT, COUNT)


def test_requests_of_one_group_of_commands_share_the_bound(rig: Rig, staged: Staged) -> None:
    rows = leased(rig, max_attempts=1)
    staged.commits.append(0)
    rejects = [ask.ChangeInvisibleTime("g", (ask.Change(row.handle, "reject"),)) for row in rows]
    results = [result for (result,) in rig.run(*rejects)]
    assert refusals(results).count("BUSY") == COUNT - len(rig.dead())
    assert staged.commits[-1] <= BURY_BYTES_MAX + LARGE


@pytest.mark.parametrize("groups", [1, 3, COUNT])
def test_a_batch_of_a_fifo_topic_is_expired_in_pieces_in_its_order(
    rig: Rig, staged: Staged, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it were done at once: the head of each message group has lost an attempt, and the order stays."""
    leased(rig, groups=groups, size=100, max_attempts=2)
    monkeypatch.setattr("popmq_server.revive.REVIVE_MEMBERS_MAX", 3)
    rig.skip(SECOND)
    settle(rig, staged)
    assert rig.numbers().waiting == COUNT
    rows = rig.pop(4096)
    assert [int(row.message_id) for row in rows if int(row.message_id) % groups == 0] == list(range(0, COUNT, groups))
    assert {row.message_id: row.attempt for row in rows} == {
        str(number): 2 if number < groups else 1 for number in range(COUNT)
    }


def test_between_two_pieces_of_a_fifo_batch_nobody_gets_any_of_its_message_groups(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    leased(rig, groups=2, size=100)
    monkeypatch.setattr("popmq_server.revive.REVIVE_MEMBERS_MAX", 3)
    rig.skip(SECOND)
    pieces = 0
    while rig.numbers().in_flight > 3:
        rig.run()
        pieces += 1
        assert rig.run(ask.Pop("t", "g"))[0].rows == [] or rig.numbers().waiting == 0
    assert pieces >= 3


def test_heads_of_a_fifo_batch_without_an_attempt_left_are_buried_in_bounded_commits(rig: Rig, staged: Staged) -> None:
    leased(rig, groups=COUNT // 2, max_attempts=1)
    staged.commits = [0]
    rig.skip(SECOND)
    settle(rig, staged)
    assert staged.most <= BURY_BYTES_MAX + LARGE
    assert sorted(int(letter.message_id) for letter in rig.dead()) == list(range(COUNT // 2))
    rows = rig.popped(max_messages=4096, max_bytes=1 << 30).rows
    assert [row[4] for row in rows] == [1] * (COUNT // 2)


def test_a_piece_has_at_most_so_many_members_in_a_fifo_topic_too() -> None:
    assert REVIVE_MEMBERS_MAX == 1000
