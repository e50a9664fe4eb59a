"""A broker that is killed at any moment loses nothing that it answered, and gives nothing out twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from popmq_verify import campaign

from tests.crash.conftest import Scale


@pytest.mark.chaos
def test_what_was_answered_survives_kill_9_under_load(
    tmp_path: Path, scale: Scale, show: Callable[[str], None]
) -> None:
    verdict = campaign.run(tmp_path, kills=scale.pick(short=5, whole=60), seed=scale.seed)
    show(verdict.table())
    assert not verdict.findings, f"seed {scale.seed}: {verdict.findings[:20]}"
    # A campaign that met nothing proves nothing.
    assert verdict.figures["pop unknown"] + verdict.figures["send unknown"] + verdict.figures["ack unknown"] > 0
    assert verdict.figures["of them second and later attempts"] > 0


@pytest.mark.chaos
def test_retention_drops_only_what_every_group_finished_whenever_the_broker_dies(
    tmp_path: Path, scale: Scale, show: Callable[[str], None]
) -> None:
    verdict = campaign.run(tmp_path, kills=scale.pick(short=3, whole=60), seed=scale.seed, dropping=True)
    show(verdict.table())
    assert not verdict.findings, f"seed {scale.seed}: {verdict.findings[:20]}"
    figures = verdict.figures
    assert figures["messages dropped by retention"] == figures["messages sent"] > 0, "all of it was finished"
