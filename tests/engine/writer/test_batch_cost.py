"""What one more message of a batch costs in the engine: a budget of calls, so that no cost for each creeps in."""

import itertools
from collections.abc import Callable

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.store import table
from popmq_server.values.handles import make_handle, read_handle
from popmq_server.values.leased import Leased
from tests.engine.rig import Rig, numbered, sending
from tests.engine.work import calls

#: Calls for each further message of a batch: as counted, and a tenth more.
POP_MAX, ACK_MAX = 11, 6.4
#: Calls for each further command of one message in a commit batch: they are run as one (coalescing.py).
SENDS_MAX, POPS_MAX, ACKS_MAX = 18, 40, 40
#: The same with request numbers, which are looked up and remembered; a Settle acks a message and sends one.
NUMBERED_MAX, SETTLES_MAX = 42, 86
#: The same for acks of one message of different CheckPoints.
ACKS_APART_MAX = 310


def each(action: Callable[[int], object], small: int, large: int) -> float:
    return (calls(lambda: action(large)) - calls(lambda: action(small))) / (large - small)


@pytest.fixture
def full(rig: Rig) -> Rig:
    rig.pair()
    for number in range(4):
        rig.send(*numbered(f"m{number}", 200))
    rig.ack(rig.pop(1))
    return rig


def acking(popped: Leased) -> ask.Ack:
    return ask.Ack("g", tuple(make_handle(popped.ck_id, row[5], popped.nonce) for row in popped.rows))


def test_a_further_message_of_a_pop_and_of_its_ack_is_within_its_budget(full: Rig) -> None:
    popped: dict[int, Leased] = {}

    def pop(count: int) -> None:
        popped[count] = full.popped(max_messages=count)

    assert each(pop, 100, 200) <= POP_MAX
    acks = {count: acking(one) for count, one in popped.items()}
    assert each(lambda count: full.do(acks[count]), 100, 200) <= ACK_MAX


def test_a_further_pop_and_ack_of_one_message_in_a_commit_is_within_its_budget(
    full: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "RECENT_MAX", 4096)  # as a broker has it: each lease is read from the store once
    pop = ask.Pop("t", "g", (), 1)
    assert each(lambda count: full.run(*[pop] * count), 10, 20) <= POPS_MAX
    acks = iter([acking(one) for one in full.run(*[pop] * 30)])
    assert each(lambda count: full.run(*itertools.islice(acks, count)), 10, 20) <= ACKS_MAX
    apart = iter([acking(full.popped(max_messages=1)) for _ in range(30)])
    assert each(lambda count: full.run(*itertools.islice(apart, count)), 10, 20) <= ACKS_APART_MAX


def test_an_ack_of_a_batch_has_the_outcome_of_its_handles_one_by_one(full: Rig) -> None:
    """Each batch has one handle that is not plainly good: those beside it are acked all the same."""
    first, second = full.popped(max_messages=4), full.popped(max_messages=4)
    good = [make_handle(first.ck_id, member, first.nonce) for member in range(4)]
    other = [make_handle(second.ck_id, member, second.nonce) for member in range(4)]
    full.do(ask.ChangeInvisibleTime("g", (ask.Change(good[3], "extend", 90_000),)))  # has a part of its own now

    def codes(*handles: str) -> list[str]:
        results = full.do(ask.Ack("g", handles)).results
        return [result.code if result else "" for result in results]

    assert codes(good[0], good[0]) == ["", "HANDLE_LAPSED"]
    assert codes(good[0], good[1]) == ["HANDLE_LAPSED", ""]
    assert codes(make_handle(*read_handle(good[2])._replace(nonce=1)), other[0]) == ["INVALID_HANDLE", ""]
    assert codes(make_handle(*read_handle(good[2])._replace(member=9)), other[1]) == ["INVALID_HANDLE", ""]
    assert codes(make_handle(*read_handle(good[2])._replace(ck_id=1 << 40)), good[2]) == ["INVALID_HANDLE", ""]
    assert codes(good[3], other[2], other[3]) == ["", "", ""]
    assert full.findings() == []


def test_a_further_send_of_one_message_in_a_commit_is_within_its_budget(rig: Rig) -> None:
    rig.topic()
    sends = [sending(text) for text in numbered("m", 60)]
    assert each(lambda count: rig.run(*sends[:count]), 20, 60) <= SENDS_MAX


def test_a_further_numbered_send_and_a_further_settle_of_one_message_in_a_commit_is_within_its_budget(
    full: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "RECENT_MAX", 4096)
    sends = iter([sending("m", producer=f"p{number}", number=1) for number in range(90)])
    assert each(lambda count: full.run(*itertools.islice(sends, count)), 20, 60) <= NUMBERED_MAX
    acks = map(acking, full.run(*[ask.Pop("t", "g", (), 1)] * 90))
    settles = iter([ask.Settle("g", ack.handles, (), (sending("m"),), ack.handles[0], 1) for ack in acks])
    assert each(lambda count: full.run(*itertools.islice(settles, count)), 20, 60) <= SETTLES_MAX
