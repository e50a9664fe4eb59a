"""Each invariant is broken: the command that meets it gets INTERNAL, nothing changes, and its neighbours are served."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.invariants.listed import BY_NAME
from popmq_server.errors import Refused
from tests.engine.invariants.breaking import Case, Scene
from tests.engine.invariants.every import CASES
from tests.engine.rig import Rig, sending

#: What other jobs of the same commit write, and the deadline of a lease whose end is tried again a minute later.
BY_OTHERS = ("meta", "due", "mark")


@pytest.fixture(autouse=True)
def kept_times_are_true() -> None:
    """Not here: what damages a row tells nobody, so a commit meets it when something is due."""


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A broker with topic `other`; its store is not judged at the end."""
    rig = Rig(tmp_path / "data")
    rig.topic("other")
    yield Scene(rig, monkeypatch)
    rig.abandon()


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_broken_invariant_ends_what_meets_it_and_changes_nothing(
    scene: Scene, case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    rig, command = scene.rig, case.damage(scene)
    caplog.set_level(logging.CRITICAL + 1, "popmq")
    caplog.set_level(logging.ERROR, "popmq.invariants")
    if command is None:
        before = scene.rows(without=BY_OTHERS)
        committed = rig.commit()
        assert (committed.broken, len(committed.failures)) == ([case.name], 1)
        assert scene.rows(without=BY_OTHERS) == before
        return
    before = scene.rows()
    committed = rig.commit(command)
    told(committed.results[0], case.name)
    assert committed.broken == [case.name]
    assert case.name in caplog.text
    assert len(caplog.records) == 1
    assert scene.rows() == before
    neighbours = [sending(text, topic="other") for text in ("before", "after")]
    committed = rig.commit(neighbours[0], command, neighbours[1])
    told(committed.results[1], case.name)
    assert committed.broken == [case.name]
    assert [committed.results[at] for at in (0, 2)] == [ask.Sent(0, 0, False), ask.Sent(0, 1, False)]


def told(result: object, name: str) -> None:
    """A caller is told the invariant, and what to do."""
    assert isinstance(result, Refused)
    assert (result.code, result.action) == ("INTERNAL", BY_NAME[name].repair)
    assert f"the invariant {name} is broken: {BY_NAME[name].sentence}" in result.message
