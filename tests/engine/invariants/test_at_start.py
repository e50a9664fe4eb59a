"""A start refuses a store with a broken invariant and names the repair, which mends it."""

from pathlib import Path

import pytest

from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded.fsck.repair import repair_folder
from popmq_server.embedded.invariants.broken import BrokenStore
from popmq_server.embedded.invariants.listed import INVARIANTS, MENDED
from popmq_server.embedded.store.keys import U64
from tests.engine.invariants.breaking import Scene
from tests.engine.invariants.of_starts import STARTS, Damage
from tests.engine.rig import Rig


@pytest.mark.parametrize(("name", "damage"), STARTS, ids=[name for name, _ in STARTS])
def test_a_start_refuses_a_store_with_a_broken_invariant_which_a_repair_mends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, damage: Damage
) -> None:
    rig = Rig(tmp_path / "data")
    damage(Scene(rig, monkeypatch))
    rig.abandon()
    with pytest.raises(BrokenStore, match=rf"the invariant {name} is broken: .*`popmq check --repair`"):
        Rig(tmp_path / "data")
    assert [finding for finding in check_folder(tmp_path / "data") if name in finding or "CheckPoint" in finding]
    assert repair_folder(tmp_path / "data").told
    again = Rig(tmp_path / "data")
    again.settle()
    assert not [finding for finding in again.findings() if "a start is refused" in finding]
    again.abandon()


def test_each_invariant_that_a_repair_mends_has_a_store_that_a_start_refuses() -> None:
    assert {name for name, _ in STARTS} == {one.name for one in INVARIANTS if one.repair == MENDED}


def test_a_message_whose_lease_was_lost_is_delivered_again_after_the_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path / "data")
    scene = Scene(rig, monkeypatch)
    scene.leased("a", "b")
    scene.empty("due")
    rig.abandon()
    repair_folder(tmp_path / "data")
    again = Rig(tmp_path / "data")
    again.settle()
    assert [row.body for row in again.pop()] == ["a", "b"]
    assert again.findings() == []
    again.abandon()


def test_a_position_beyond_its_queue_skips_no_later_message_after_the_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path / "data")
    scene = Scene(rig, monkeypatch)
    rig.ack(scene.leased("a"))
    scene.change("poff", lambda _: U64.pack(9))
    rig.abandon()
    repair_folder(tmp_path / "data")
    again = Rig(tmp_path / "data")
    again.send("b")
    assert [row.body for row in again.pop()] == ["b"]
    assert again.findings() == []
    again.abandon()
