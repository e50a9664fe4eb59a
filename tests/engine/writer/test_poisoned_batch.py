"""A batch in which many commands fail after they wrote: what the others cost then, and that each is still done once."""

import functools
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.operations import Command
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.writer import core
from popmq_server.errors import invalid
from tests.engine.rig import Rig, bodies, refusal, sending
from tests.engine.unlisted import Unlisted
from tests.engine.work import grows


class Poison(Command[None], Unlisted, lane=ask.LANE_SEND):
    """Writes and is refused."""


class Work:
    """Counts the commits of batches with poisoned commands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commits = 0
        commit = Transaction.commit

        def refuse(tx: Tx, _: Poison) -> Any:
            tx.next("rseq")
            raise invalid("no", action="none")

        def counted(transaction: Transaction) -> None:
            self.commits += 1
            commit(transaction)

        monkeypatch.setitem(core.HANDLERS, Poison, refuse)
        monkeypatch.setattr(Transaction, "commit", counted)


@pytest.fixture
def work(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Work:
    rig.pair()
    return Work(monkeypatch)


def test_the_work_of_a_poisoned_batch_grows_little_more_than_its_commands(rig: Rig, work: Work) -> None:
    """Sends, each before a poisoned command: running all again for each of these would cost 100 times as much."""
    batches = [[each for _ in range(size) for each in (sending("a"), Poison())] for size in (30, 300)]
    assert grows(*(functools.partial(rig.run, *commands) for commands in batches)) < 20


def test_sends_between_poisoned_commands_are_stored_once_in_order_and_in_few_commits(rig: Rig, work: Work) -> None:
    sends = [sending(f"m{number}") for number in range(60)]
    results = rig.run(*(each for send in sends for each in (send, Poison())))
    assert [refusal(each) for each in results] == ["", "INVALID_FIELD"] * 60
    assert work.commits < 30
    assert sorted(bodies(rig.pop(60))) == sorted(f"m{number}" for number in range(60))


def test_acks_and_due_jobs_of_a_poisoned_batch_are_done(rig: Rig, work: Work) -> None:
    rig.send("a", "b")
    acked, late = rig.pop(1, invisible_ms=1000), rig.pop(1, invisible_ms=1000)
    rig.skip(1000)
    ack, *_ = rig.run(ask.Ack("g", (acked[0].handle,)), *[Poison()] * 20)
    assert refusal(ack.results[0]) == ""
    assert [(row.body, row.attempt) for row in rig.pop(2)] == [(late[0].body, 2)]
