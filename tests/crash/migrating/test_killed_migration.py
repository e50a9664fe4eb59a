"""`popmq migrate` that is killed at any moment and started again."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.conftest import Scale
from tests.crash.migrating import campaign

#: The part of the messages that a group may get although it had finished them.
REPEATED = 0.01


@pytest.mark.chaos
def test_a_migration_that_is_killed_loses_nothing_and_repeats_little(
    tmp_path: Path, scale: Scale, show: Callable[[str], None]
) -> None:
    messages = scale.pick(short=20_000, whole=1_000_000)
    verdict = campaign.run(tmp_path, messages=messages, kills=10, seed=scale.seed)
    show(verdict.table())
    assert verdict.missing == dict.fromkeys(campaign.PARTS, 0), f"seed {scale.seed}"
    assert verdict.repeated == verdict.told, "the command says how much is repeated"
    assert max(verdict.repeated.values()) <= REPEATED * messages, verdict.repeated
    assert verdict.stored <= messages * (1 + REPEATED)
    assert verdict.kills["in the copy"] > 0, "a campaign that met nothing proves nothing"
