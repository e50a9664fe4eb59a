"""What results cost, in counted work: puts by the request, look-ups by generations, and no objects that stay."""

import gc

import pytest

from popmq_server.embedded.operations import ResultsPiece
from popmq_server.embedded.store.lmdb import Transaction
from tests.engine.results.giving import acking, leased
from tests.engine.rig import HOUR, Rig
from tests.engine.work import calls

BATCH = 256


def stored(rig: Rig, count: int, begin: int = 0) -> None:
    """Stores so many results, by 256, and lets the job move their names."""
    for start in range(begin, begin + count, BATCH):
        names = [f"m{number}" for number in range(start, start + BATCH)]
        rig.do(acking(leased(rig, *names), *names))
        rig.advance(1100)


@pytest.fixture
def rig(rig: Rig) -> Rig:
    rig.pair(results_keep_ms=HOUR)
    return rig


@pytest.mark.usefixtures("unjournaled")
def test_an_ack_with_256_results_has_as_many_puts_more_as_one_send(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    put, names = Transaction.put, list[str]()

    def noted(tx: Transaction, name: str, key: bytes, value: bytes) -> None:
        names.append(name)
        put(tx, name, key, value)

    rows = [leased(rig, *(f"{turn}-{number}" for number in range(BATCH))) for turn in "ab"]
    monkeypatch.setattr(Transaction, "put", noted)
    rig.ack(rows[0])
    plain = sorted(names)
    names.clear()
    rig.do(acking(rows[1], *["x"] * BATCH))
    more = sorted(names)
    for name in plain:
        more.remove(name)
    assert more == ["cq", "idx", "log", "meta", "tstat"]


def test_an_ack_with_results_costs_some_dozens_of_calls_for_each(rig: Rig) -> None:
    rows = leased(rig, *map(str, range(BATCH)))
    command = acking(rows, *["x"] * BATCH)
    assert calls(lambda: rig.run(command)) / BATCH < 45


def test_a_look_up_of_an_id_without_a_result_costs_little_more_beside_ten_times_as_many(rig: Rig) -> None:
    stored(rig, 8 * BATCH)
    asked = ResultsPiece("g", ("nobody",), 1 << 20)
    small = calls(lambda: rig.run(asked))
    stored(rig, 72 * BATCH, 8 * BATCH)
    assert calls(lambda: rig.run(asked)) < small + 400


def test_no_object_stays_for_a_result(rig: Rig) -> None:
    stored(rig, 20 * BATCH)
    gc.collect()
    before = len(gc.get_objects())
    stored(rig, 20 * BATCH, 20 * BATCH)
    gc.collect()
    assert len(gc.get_objects()) - before < 10 * BATCH
