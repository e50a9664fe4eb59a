"""What a commit batch of one command costs: a budget of calls, so that additions are noticed."""

import pytest

from popmq_server.contract import commands as ask
from tests.engine.rig import Rig, numbered, sending
from tests.engine.work import calls

#: Calls of a commit of one command, of one message each: a little more than was counted.
SEND_MAX, POP_MAX, ACK_MAX = 370, 615, 485


@pytest.fixture(autouse=True)
def kept_times_are_true() -> None:
    """Not here: the comparison makes calls."""


@pytest.fixture
def busy(unjournaled: None, rig: Rig) -> Rig:
    """A broker that has run each command before, so that first-time work is not counted."""
    rig.pair()
    rig.send(*numbered("m", 8))
    rig.ack(rig.pop(1, client_id="c", attempt_id="1"))
    return rig


def test_a_commit_of_one_send_is_within_its_budget(busy: Rig) -> None:
    assert calls(lambda: busy.core.run([sending(*numbered("n", 1))])) <= SEND_MAX


def test_a_commit_of_one_pop_is_within_its_budget(busy: Rig) -> None:
    pop = ask.Pop("t", "g", (), 1, client_id="c", attempt_id="2")
    assert calls(lambda: busy.core.run([pop])) <= POP_MAX


def test_a_commit_of_one_ack_is_within_its_budget(busy: Rig) -> None:
    row = busy.pop(1, client_id="c", attempt_id="2")[0]
    assert calls(lambda: busy.core.run([ask.Ack("g", (row.handle,))])) <= ACK_MAX
