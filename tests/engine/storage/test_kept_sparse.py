"""A kept store has batches whose messages lie apart, as sparse runs: this release goes on with each of them.

tests/stores/fill.py says what is in it (`sparse`): 64 messages of four keys in topic apart, 8 in topic tenants.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded.store.checkpoint import VERSION_SPARSE
from tests.engine.rig import HOUR, MINUTE, Rig, bodies
from tests.stores.kept import SPARSE, put_packed

ALL = [f"{key}{number}" for key in ("acme", "bolt", "cove", "dime") for number in range(16)]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    put_packed(tmp_path / "data", SPARSE)
    rig = Rig(tmp_path / "data")
    assert rig.findings() == []
    yield rig
    assert rig.findings() == []
    rig.core.close()
    assert check_folder(rig.folder) == []


def drain(rig: Rig, topic: str, group: str) -> list[str]:
    found = list[str]()
    for _ in range(24):
        while rows := rig.pop(8, topic, group, invisible_ms=MINUTE):
            found += bodies(rows)
            assert rig.ack(rows, group) == [None] * len(rows)
        rig.advance(HOUR)
    return found


def test_it_has_sparse_checkpoints_sparse_history_and_what_was_passed(rig: Rig) -> None:
    assert VERSION_SPARSE in {value[0] for _, value in rig.read("ck")}
    assert 2 in {value[0] for _, value in rig.read("hist")}
    assert rig.read("taken")


def test_what_was_acked_does_not_come_again_and_everything_else_does(rig: Rig) -> None:
    numbers = rig.numbers("each", "apart")
    assert (numbers.acked, numbers.in_flight, numbers.backoff) == (8 + 4, 4, 4)
    found = Counter(drain(rig, "apart", "each"))
    assert found.total() == len(found) == len(ALL) - 12
    assert {*found} <= {*ALL}
    numbers = rig.numbers("each", "apart")
    assert (numbers.acked, numbers.ready, numbers.retry) == (len(ALL), 0, 0)


def test_the_same_attempt_gets_those_of_its_batch_that_were_not_acked(rig: Rig) -> None:
    asked = {"client_id": "c1", "attempt_id": "try", "invisible_ms": 20 * HOUR}
    rows = rig.pop(8, "apart", "each", **asked)
    assert len(rows) == 4
    assert rig.ack(rows, "each") == [None] * 4
    assert not {*bodies(rows)} & {*drain(rig, "apart", "each")}


def test_leases_of_keys_are_counted_from_it(rig: Rig) -> None:
    keys = {key.key: (key.waiting, key.in_flight) for key in rig.numbers("fair", "tenants").busiest_keys}
    assert keys == {}, "nothing was read ahead yet"
    assert rig.pop(8, "tenants", "fair") == [], "acme has its one in flight, bolt its two"
    keys = {key.key: (key.waiting, key.in_flight) for key in rig.numbers("fair", "tenants").busiest_keys}
    assert keys == {"acme": (3, 1), "bolt": (2, 2)}
    rig.advance(MINUTE)
    assert sorted(body[:4] for body in bodies(rig.pop(8, "tenants", "fair"))) == ["acme", "bolt", "bolt"]
