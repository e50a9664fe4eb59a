"""Once valid pages in wrong places: what `popmq check` and a start see of them."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from popmq_server.clock import FakeClock
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded.store.datafile.layout import meta_of
from popmq_server.embedded.store.folder import DATA_FILE
from popmq_server.errors import StartError
from tests.engine.rig import Rig
from tests.engine.traffic.data_files import PAGE
from tests.sources import ROOT

TRIES = 15


@pytest.mark.chaos
def test_popmq_check_finds_each_page_that_changes_what_is_delivered(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.jepsen.pages", str(tmp_path), "1", str(TRIES)]
    lines = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, cwd=ROOT).stdout
    seen = [json.loads(line) for line in lines.splitlines()]
    assert Counter(one["kind"] for one in seen).keys() == {"stale", "misdirected", "same keys"}
    assert [one for one in seen if one["wrong"]] == []
    # A start that refuses has delivered nothing, which is no loss.
    assert [one for one in seen if not one["found"] and _differs(one)] == []
    assert any(one["found"] and not one["start"] and _differs(one) for one in seen), "a start sees less than the check"


def _differs(one: dict[str, object]) -> bool:
    """Whether clients see that something happened."""
    return bool(one["error"] or one["ended"] or one["lost"] or one["repeated"])


def test_a_lost_write_of_the_newest_meta_page_is_seen(tmp_path: Path) -> None:
    """The page as it was two commits ago: the store goes back by one commit, whose send was answered."""
    rig = Rig(tmp_path)
    rig.pair()
    rig.send("first")
    rig.send("second")
    before = (tmp_path / DATA_FILE).read_bytes()
    rig.send("third")
    rig.send("last")
    rig.core.close()
    now = (tmp_path / DATA_FILE).read_bytes()
    newest = max((0, 1), key=lambda number: _commit(now, number))
    assert _commit(before, newest) == _commit(now, newest) - 2
    with open(tmp_path / DATA_FILE, "r+b") as file:
        file.seek(newest * PAGE)
        file.write(before[newest * PAGE : (newest + 1) * PAGE])
    assert any("lacks the last commit" in finding for finding in check_folder(tmp_path))
    with pytest.raises(StartError, match="lost the write of commit"):
        Rig(tmp_path, FakeClock(rig.now))


def _commit(file: bytes, number: int) -> int:
    """The number of the commit of a meta page."""
    meta = meta_of(file, number * PAGE)
    assert meta is not None
    return meta.commit
