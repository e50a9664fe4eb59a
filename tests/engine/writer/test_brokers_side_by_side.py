"""Several brokers in one process, as programs that embed them have: the commands of one do not concern the others."""

from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.operations import Command
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.writer import core
from popmq_server.errors import invalid
from tests.engine.conftest import MakeRig
from tests.engine.rig import Rig
from tests.engine.unlisted import Unlisted


class Disturbed(Command[None], Unlisted, lane=ask.LANE_ACK):
    """Is refused after another broker of the process has changed a table of its own."""

    other: Rig


def test_a_refused_command_does_not_count_as_written_because_another_broker_wrote(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, other = make_rig("one"), make_rig("other")
    looks: list[int] = []

    def refuse(tx: Tx, command: Disturbed) -> Any:
        before = tx.dirty
        command.other.core.state.purged.pop(1)
        looks.append(tx.dirty - before)
        raise invalid("no", action="none")

    monkeypatch.setitem(core.HANDLERS, Disturbed, refuse)
    refused = rig.run(Disturbed(other))
    assert [each.code for each in refused] == ["INVALID_FIELD"]
    assert looks == [0]


def test_a_command_that_changed_a_table_of_its_own_broker_counts_as_written(rig: Rig) -> None:
    tx = Tx(rig.core.state, rig.store, rig.now)
    counts = [tx.dirty]
    rig.core.state.purged.pop(1)
    counts.append(tx.dirty)
    rig.core.state.leases.pop((1, 0))
    counts.append(tx.dirty)
    tx.abort()
    assert counts == [counts[0], counts[0] + 1, counts[0] + 2]
