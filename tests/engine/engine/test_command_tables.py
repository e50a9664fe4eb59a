"""The tables keyed by the type of a command agree: none leaves one out, and none names one that does not exist."""

from pathlib import Path
from typing import NamedTuple

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.contract.capabilities import CAPABILITIES
from popmq_server.contract.commands.lanes import NEED_ROOM
from popmq_server.contract.commands.queries import Listing
from popmq_server.embedded.loop.in_pieces import REPEATED
from popmq_server.embedded.store.store import Store
from popmq_server.embedded.writer.core import Core
from popmq_server.embedded.writer.handlers import HANDLERS
from popmq_server.embedded.writer.writer import Writer
from popmq_server.protocols.access.needs import ASKING, NEEDS
from tests.engine.rig import Rig


class Undeclared(NamedTuple):
    """Looks like a command, and has no lane."""


#: A base class of queries; the writer runs SetMaxSize itself, between two transactions.
BASE, OUTSIDE = Listing, ask.SetMaxSize
DECLARED = {kind for kind in ask.LANES if kind.__module__.startswith("popmq_server.")} - {BASE}


def test_every_command_has_a_lane_a_handler_and_a_right() -> None:
    assert {*HANDLERS, OUTSIDE} == DECLARED
    assert {*NEEDS, *ASKING} == DECLARED


def test_tables_of_some_commands_name_only_declared_ones() -> None:
    capable = {part for each in CAPABILITIES.values() for part in each.parts if isinstance(part, type)}
    assert {*REPEATED, *NEED_ROOM, *capable} <= DECLARED


def test_a_command_without_a_lane_is_an_error_for_the_core_and_for_the_writer(rig: Rig, tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        rig.run(Undeclared())
    core = Core(Store(tmp_path / "other", 1 << 26, "none"), FakeClock())
    with pytest.raises(KeyError):
        Writer(core, core.clock, lambda *_: None, lambda _: None).submit(Undeclared(), None)
    core.close()
