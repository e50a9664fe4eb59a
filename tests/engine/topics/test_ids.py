"""The last id of a topic, a group, a lite topic and an owner: a store refuses further ones, and goes on."""

from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.store.keys import U64
from popmq_server.values.ids import ENTITY_MAX
from popmq_server.values.records import Counters
from tests.engine.rig import KEEP, Rig, bodies, refusal

ENTITY = Counters._fields.index("entity") * U64.size


def given(rig: Rig, ids: int) -> None:
    """The store has given so many ids."""
    kv = rig.store.begin()
    raw = bytes(kv.get("meta", b"counters") or b"")
    kv.put("meta", b"counters", raw[:ENTITY] + U64.pack(ids + 1) + raw[ENTITY + U64.size :])
    kv.commit()
    rig.crash()


def test_the_last_id_is_given_and_used(rig: Rig) -> None:
    rig.pair()
    given(rig, ENTITY_MAX - 1)
    rig.run(ask.CreateTopic("last", 1, False, KEEP))
    rig.send("a", topic="last")
    assert bodies(rig.pop(topic="last")) == ["a"]
    rig.restart()
    assert rig.findings() == []


@pytest.mark.parametrize(
    "command",
    [
        ask.CreateTopic("new", 1, False, KEEP),
        ask.AttachOwner("g", "o", 60_000),
        ask.PurgeTopic("t"),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_store_that_has_no_id_left_refuses_what_needs_one_and_goes_on(rig: Rig, command: Any) -> None:
    rig.pair()
    given(rig, ENTITY_MAX)
    assert refusal(rig.run(command)[0]) == "STORAGE_FULL"
    rig.send("a")
    assert bodies(rig.pop()) == ["a"]
    assert rig.findings() == []
