"""Leases at rest: what is committed of them stays in the store, and a start counts them without an object for each."""

import gc
import tracemalloc
from unittest import mock

import pytest

from popmq_server.contract.commands import queries
from popmq_server.embedded.state.leases import attempt_key
from popmq_server.embedded.store import table
from tests.engine.conftest import MakeRig
from tests.engine.rig import SECOND, Rig, bodies, numbered
from tests.engine.traffic.resting import COMMIT, leases
from tests.engine.work import calls

#: What an idle lease of one message may cost: most of it is one entry of a dictionary, and one more for its attempt id.
LEASE_BYTES_MAX = 300
#: Calls of a start for a lease of one message: its columns are read by structs and counted by counters.
START_CALLS_MAX = 4


def start(rig: Rig) -> None:
    rig.abandon()
    rig._start()


@pytest.mark.slow
@pytest.mark.parametrize("attempts", [True, False])
def test_a_start_makes_few_calls_for_a_lease_of_one_message(
    unjournaled: None, make_rig: MakeRig, attempts: bool
) -> None:
    few, many = leases(make_rig("few"), 300, attempts=attempts), leases(make_rig("many"), 3000, attempts=attempts)
    assert (calls(lambda: start(many)) - calls(lambda: start(few))) / 2700 <= START_CALLS_MAX


@pytest.mark.slow
@pytest.mark.parametrize("attempts", [True, False])
def test_a_lease_of_one_message_takes_at_most_300_bytes_of_memory(
    make_rig: MakeRig, attempts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    for count in (0, 6000):
        rig = leases(make_rig(str(count)), count, attempts=attempts)
        rig.abandon()
        gc.collect()
        tracemalloc.start()
        try:
            rig._start()
            gc.collect()
            taken.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
    assert (taken[1] - taken[0]) / 6000 <= LEASE_BYTES_MAX


@pytest.mark.slow
def test_memory_keeps_a_bounded_number_of_leases_as_objects(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "RECENT_MAX", 50)
    leases(rig, 3000)
    state = rig.core.state
    for kept in (state.ck, state.leases):
        assert len(kept._base) + len(kept._older) <= 2 * (50 + COMMIT), "two generations, each with its last commit"


@pytest.mark.parametrize("recent_max", [1, 4096])
def test_an_old_lease_is_acked_extended_and_released_like_a_new_one(
    rig: Rig, recent_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "RECENT_MAX", recent_max)
    rig.pair()
    rig.send(*numbered("m", 4))
    rows = [row for _ in range(4) for row in rig.pop(1)]
    leases(rig, 20)
    rig.restart()
    rig.ack(rows[:1])
    rig.extend(rows[1:2], 90 * SECOND)
    rig.release(rows[2:3])
    assert bodies(rig.pop(10)) == ["m2"]
    rig.advance(60 * SECOND)
    assert bodies(rig.pop(10)) == ["m3", "m2"]
    rig.ack(rows[1:2])


def test_a_pop_is_not_answered_with_messages_leased_by_another_attempt(rig: Rig) -> None:
    """The key of an attempt is a hash: two of them may be equal."""
    rig.pair()
    rig.send("a", "b")
    with mock.patch("popmq_server.embedded.state.leases.hash", return_value=7, create=True):
        assert attempt_key(1, 1, "c", "1") == attempt_key(2, 2, "d", "2")
        first, second, again = (rig.pop(1, client_id="c", attempt_id=attempt) for attempt in "122")
        assert [bodies(rows) for rows in (first, second, again)] == [["a"], ["b"], ["b"]]
        rig.ack([*first, *again])


@pytest.mark.parametrize("name", ['"', "\\", 'a", "b', "ü", "\u2028", "[]"])
def test_names_with_any_characters_are_found_after_a_restart(rig: Rig, name: str) -> None:
    rig.pair()
    rig.send("a", "b")
    first = rig.pop(1, client_id=name, attempt_id=name)
    rig.restart()
    assert [row.handle for row in rig.pop(1, client_id=name, attempt_id=name)] == [row.handle for row in first]
    assert rig.do(queries.HeldBy((("g", name), ("g", "nobody")))) == {("g", name): 1}
