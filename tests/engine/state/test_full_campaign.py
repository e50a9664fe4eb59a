"""Random histories of a store that is 80 to 100 % full: each heals once something is deleted, and nothing is lost.

`POPMQ_CAMPAIGN=whole` (make chaos) lives 200 of them, `make test-all` some.
"""

import logging
from pathlib import Path

import pytest

from tests.conftest import WHOLE
from tests.engine.search.full_map import lived

HISTORIES = 200 if WHOLE else 12


@pytest.mark.slow
@pytest.mark.timeout(0 if WHOLE else 120)
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_store_that_was_full_heals_when_something_is_deleted_and_has_lost_nothing(
    seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "popmq")
    rig = lived(seed, tmp_path / "data")
    broken = rig.findings()
    rig.abandon()
    assert broken == []
