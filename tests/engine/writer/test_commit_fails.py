"""A commit that fails leaves memory as a fresh start would find it, and a command that fails harms nobody else.

Every k-th commit fails, in each way that a commit can fail, under random commands of every kind.
"""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.operations import Command
from popmq_server.embedded.rules.delivery import revive
from popmq_server.embedded.state import jobs
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import CheckPoint, Lease
from popmq_server.embedded.store.folder import DATA_FILE
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.writer import core
from popmq_server.errors import CommitFailed, Refused
from popmq_server.values.ids import GroupId, TopicId
from tests.engine.conftest import MakeRig
from tests.engine.faults import Fault, failing, failing_put
from tests.engine.rig import Rig, bodies, refusal, refusals, sending
from tests.engine.traffic.traffic import Traffic
from tests.engine.traffic.traffic_timing import TimedTraffic
from tests.engine.unlisted import Unlisted


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of failures would be thousands of lines."""
    caplog.set_level(logging.CRITICAL, "popmq")


def begun(rig: Rig, traffic: Traffic) -> Traffic:
    rig.run(*traffic.first())
    return traffic


@pytest.mark.slow
@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.NONE])
@pytest.mark.parametrize(("kind", "every"), [(Traffic, 1), (Traffic, 2), (Traffic, 5), (TimedTraffic, 3)])
def test_memory_equals_the_store_after_a_failed_commit(rig: Rig, fault: Fault, kind: type[Traffic], every: int) -> None:
    traffic = begun(rig, kind(seed=every))
    struck = 0
    for turn in range(120):
        rig.skip(traffic.pause_ms())
        traffic.now_ms = rig.now
        commands = traffic.group()
        with failing(rig.store, fault if turn % every == 0 else Fault.NONE) as hit:
            try:
                committed = rig.commit(*commands)
            except CommitFailed:
                committed = None
        struck += bool(hit.times)
        if hit.times:
            assert rig.findings() == []
        if committed is None:
            rig.crash()
        else:
            assert not (fault is Fault.IO and hit.times), "a commit that cannot be trusted must not be answered"
            traffic.checks += committed.timed.checks
            traffic.learn(commands, committed.results)
        rig.settle()
    assert struck > 60 / every


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_memory_equals_the_store_after_a_put_into_a_full_map(rig: Rig, seed: int) -> None:
    traffic = begun(rig, Traffic(seed))
    struck = 0
    for turn in range(150):
        rig.skip(traffic.pause_ms())
        commands = traffic.group()
        with failing_put(1 + turn % 23) as hit:
            results = rig.run(*commands)
        struck += hit.times
        if hit.times:
            assert rig.findings() == []
        traffic.learn(commands, results)
        rig.settle()
    assert struck > 30


@pytest.mark.mechanism("S2.12")
def test_a_failed_commit_with_room_on_the_disk_is_final(rig: Rig) -> None:
    rig.pair()
    with failing(rig.store, Fault.IO) as hit, pytest.raises(CommitFailed):
        rig.run(sending("a"))
    assert hit.times == 1, "an fsync that failed is not tried again"
    rig.crash()
    assert rig.pop() == []


@pytest.mark.parametrize("map_bytes", [1 << 28, 1 << 40], ids=["small map", "map that seems to have plenty"])
@pytest.mark.parametrize("fault", [Fault.FULL_ONCE, Fault.MAP_ONCE])
def test_a_full_disk_refuses_what_needs_room_and_takes_acks(make_rig: MakeRig, fault: Fault, map_bytes: int) -> None:
    rig = make_rig(map_bytes=map_bytes)
    rig.pair()
    rig.send("a", "b")
    rows = rig.pop(1)
    with failing(rig.store, fault):
        sent, acked, popped = rig.run(sending("c"), ask.Ack("g", (rows[0].handle,)), ask.Pop("t", "g", max_messages=1))
    assert refusals([sent, popped]) == ["STORAGE_FULL", "STORAGE_FULL"]
    assert acked.results == [None]
    assert bodies(rig.pop()) == ["b"]


def _removed(folder: Path) -> None:
    shutil.rmtree(folder)


def _replaced(folder: Path) -> None:
    (folder / "other").write_bytes((folder / DATA_FILE).read_bytes())
    (folder / "other").rename(folder / DATA_FILE)


@pytest.mark.parametrize("harm", [_removed, _replaced])
def test_a_data_file_that_is_removed_or_replaced_ends_the_writer_before_it_answers(
    rig: Rig, harm: Callable[[Path], None]
) -> None:
    rig.pair()
    harm(rig.store.folder)
    with pytest.raises(CommitFailed):
        rig.run(sending("a"))


def test_an_error_in_the_measurement_of_the_room_leaves_no_transaction_open(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Transaction] = []
    monkeypatch.setattr(Transaction, "abort", lambda txn: ended.append(txn))
    monkeypatch.setattr(rig.store, "disk_free", mock.Mock(side_effect=CommitFailed))
    with pytest.raises(CommitFailed):
        rig.run(sending("a"))
    monkeypatch.undo()
    (left,) = ended
    left.abort()


@pytest.mark.mechanism("D.12")
def test_a_disk_that_takes_nothing_answers_unavailable_and_is_asked_again_later(unjournaled: None, rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    rows = rig.pop(1, invisible_ms=1000)
    rig.skip(1000)
    with failing(rig.store, Fault.FULL) as hit:
        refused = rig.run(ask.Ack("g", (rows[0].handle,)))[0]
        assert refusal(refused) == "UNAVAILABLE"
        assert "`popmq max-size`" in refused.action
        assert hit.times == 3, "together, then the ack and the lease apart"
        assert not rig.due, "the writer does not spin on a full disk"
    rig.advance(jobs.RETRY_MS)
    assert [(row.body, row.attempt) for row in rig.pop()] == [("a", 2)]


# ── One command fails ────────────────────────────────────────────────────────────────────────────────────────────────


class Poison(Command[None], Unlisted, lane=ask.LANE_ACK):
    """Writes everywhere, and raises."""

    error: Exception


def poison(tx: Tx, command: Poison) -> Any:
    tx.kv.put("rq", b"poison", b"poison")
    tx.state.poff[(GroupId(9), TopicId(9), 9)] = 9
    tx.next("rseq")
    tx.state.staged[9] = []
    tx.wake(None, 1)
    raise command.error


@pytest.mark.mechanism("S1.56", "I.28")
@pytest.mark.parametrize("lane", [ask.LANE_ACK, ask.LANE_SEND, ask.LANE_POP])
@pytest.mark.parametrize(
    ("error", "code"), [(RuntimeError("bug"), "INTERNAL"), (Refused("BUSY", "no"), "BUSY")], ids=["bug", "refusal"]
)
def test_a_poisoned_command_fails_alone(
    rig: Rig, lane: int, error: Exception, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(core.HANDLERS, Poison, poison)
    monkeypatch.setattr(Poison, "lane", lane)
    rig.pair()
    rig.send("a")
    row = rig.pop()[0]
    results = rig.run(
        Poison(error), ask.Ack("g", (row.handle,)), sending("b"), Poison(error), ask.Pop("t", "g"), Poison(error)
    )
    assert [refusal(results[place]) for place in (0, 3, 5)] == [code] * 3
    assert results[1].results == [None]
    assert not results[2].duplicate
    assert len(results[4].rows) == 1
    assert rig.read("rq") == []
    assert rig.findings() == []


def test_a_put_that_finds_the_map_full_refuses_its_command_alone(
    unjournaled: None, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(core.HANDLERS, Poison, lambda tx, command: tx.kv.put("rq", b"x", b"x"))
    rig.pair()
    with failing_put(1):
        full, _ = rig.run(Poison(RuntimeError()), sending("a"))
    assert refusal(full) == "STORAGE_FULL"
    assert bodies(rig.pop()) == ["a"]


@pytest.mark.mechanism("D.05", "D.11")
def test_a_lease_that_cannot_be_revived_waits_and_the_others_do_not(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.pair()
    rig.send("a", "b")
    bad = rig.popped(max_messages=1).ck_id
    rig.popped(max_messages=1)
    expire = revive.expire

    def fail(tx: Tx, ck: CheckPoint, sub: int, part: Lease, outcome: revive.Outcome) -> int:
        if ck.ck_id == bad:
            raise RuntimeError("bug")
        return expire(tx, ck, sub, part, outcome)

    with monkeypatch.context() as patched:
        patched.setattr(revive, "expire", fail)
        rig.advance(60_000)
        assert bodies(rig.pop()) == ["b"]
        assert rig.failures == ["lease"]
    rig.advance(jobs.POSTPONE_MS)
    assert bodies(rig.pop(queues=(0,))) == ["a", "b"]


@pytest.mark.mechanism("S2.60")
def test_a_pop_of_an_aborted_transaction_has_no_effect(unjournaled: None, rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    commit = Transaction.commit
    seen: list[int] = []

    def once(transaction: Transaction) -> None:
        if not seen:
            seen.append(1)
            raise RuntimeError("killed between flush and commit")
        commit(transaction)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Transaction, "commit", once)
        with pytest.raises(RuntimeError):
            rig.run(ask.Pop("t", "g"))
    assert rig.findings() == []
    assert [(row.body, row.attempt) for row in rig.pop()] == [("a", 1)]
