"""What a reset made void costs pops nothing while the sweep has not come to it."""

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.delivery import pick, sweep
from tests.engine.conftest import MakeRig
from tests.engine.rig import Rig, bodies, deliveries, numbered
from tests.engine.work import grows


def void_retries(rig: Rig, count: int) -> None:
    """A retry topic that a reset made void, of which the sweep has removed next to nothing."""
    rig.pair()
    rig.send(*numbered("old", count))
    rig.release(rig.pop(count), delay_ms=0)
    rig.do(ask.ResetOffsets("t", "g", ("EARLIEST", 0)))
    rig.ack(rig.pop(count, queues=(0,)))


@pytest.mark.slow
def test_pops_do_not_step_over_all_void_entries_each_time(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "SWEEP_MAX", 1)
    monkeypatch.setattr(pick, "VOIDS_MAX", 50)
    rigs = [make_rig("few"), make_rig("many")]
    for rig, count in zip(rigs, (200, 2000), strict=True):
        void_retries(rig, count)
    for rig in rigs:
        for _ in range(60):
            rig.pop(1)
    assert grows(lambda: rigs[0].pop(1), lambda: rigs[1].pop(1)) < 1.2
    small, large = (make_rig("small"), make_rig("large"))
    void_retries(small, 200)
    void_retries(large, 2000)
    assert grows(lambda: small.pop(1), lambda: large.pop(1)) < 1.2, "also the first one is bounded"


def test_a_retry_after_many_void_entries_is_found_by_the_next_looks(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "SWEEP_MAX", 1)
    monkeypatch.setattr(pick, "VOIDS_MAX", 50)
    void_retries(rig, 200)
    rig.send("new")
    rig.release(rig.pop(1), delay_ms=0)
    looks = 0
    while not (popped := rig.popped(max_messages=1)).rows:
        assert popped.again, "the caller goes on at once"
        looks += 1
    assert bodies(deliveries(popped)) == ["new"]
    assert looks <= 4
