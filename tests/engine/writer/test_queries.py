"""Commands and queries of the contract and of the engine: their lanes, and handlers that answer with their types."""

import typing

import pytest

from popmq_server.contract.commands import EveryOperation
from popmq_server.contract.operations import LANE_ACK, LANE_POP, LANE_SEND, Operation, Query
from popmq_server.embedded.loop.broker import BY_LOOP
from popmq_server.embedded.operations import EveryOwn
from popmq_server.embedded.writer.core import BY_CORE, BY_WRITER
from popmq_server.protocols.access.access_keys import Key, read_grant

OPERATIONS: tuple[type[Operation[object]], ...] = typing.get_args(EveryOperation | EveryOwn)


@pytest.mark.parametrize("kind", OPERATIONS)
def test_every_operation_has_a_handler_and_a_lane(kind: type[Operation[object]]) -> None:
    """So says the type checker, too: tests/engine/engine/test_command_types.py."""
    assert kind in BY_WRITER.handlers | BY_CORE.handlers | BY_LOOP.handlers
    assert kind.lane in ([LANE_POP] if issubclass(kind, Query) else [LANE_ACK, LANE_SEND, LANE_POP])


def test_no_key_allows_what_is_the_engines_own() -> None:
    key = Key("root", (), [read_grant("*"), read_grant("admin")])
    for kind in typing.get_args(EveryOwn):
        assert not any(map(key.may, kind.needs(None))), kind
