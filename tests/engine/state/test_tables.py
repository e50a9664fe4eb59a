"""The tables of the state: each is declared once, and what removes a topic, a group or an owner finds it there."""

import itertools
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.state.all_tables import lite_hash
from popmq_server.embedded.state.state import State
from popmq_server.embedded.store.table import Table
from popmq_server.embedded.store.tables import (
    GROUP,
    MESSAGE_GROUP,
    OWNER,
    QUEUE,
    TOPIC,
    Role,
)
from popmq_server.values.ids import GroupId, TopicId
from popmq_server.values.records import Owner, Topic
from tests.engine import lites
from tests.engine.conftest import MakeRig
from tests.engine.rig import HOUR, KEEP, SECOND, Rig
from tests.engine.traffic.traffic_fifo import fifo_message

rig = pytest.fixture(lites.lite_rig)

GONE, STAYS = 7, 8
#: For each role two parts that keys in these tests have.
PARTS: dict[Role, tuple[Any, Any]] = dict.fromkeys(Role, (GONE, STAYS)) | {
    QUEUE: (0, 1),
    MESSAGE_GROUP: (lite_hash("a"), lite_hash("b")),
}
#: Tables whose values name other entities: they are filled with an empty tuple, the least they may have.
INDEXES = ("topic_groups", "owner_tokens", "stopped_spans")


def filled() -> State:
    """A state whose tables with roles have an entry for each combination of the parts."""
    state = State()
    names = {id(table): name for name, table in vars(state).items()}
    for table, roles in state.tables.roles():
        for key in itertools.product(*(PARTS[role] for role in roles)) if roles else ():
            table[key if len(roles) > 1 else key[0]] = (
                () if names[id(table)] in INDEXES else _value(names[id(table)], key)
            )
    return state


def _value(name: str, key: tuple[Any, ...]) -> Any:
    if name == "owners":
        return Owner(key[1], key[0], key[1], "", 0, 0, 0, 0, released=False)
    return Topic(TopicId(key[0]), "", 1, False, 0, 0) if name == "topics" else 1


def keys_with(state: State, role: Role, part: int) -> set[str]:
    """The tables that have a key with this part in this role."""
    names = {id(table): name for name, table in vars(state).items()}
    return {
        names[id(table)]
        for table, roles in state.tables.roles()
        if role in roles and any((key if len(roles) > 1 else (key,))[roles.index(role)] == part for key in table)
    }


def test_each_table_of_the_state_is_declared() -> None:
    state = State()
    declared = {id(table) for table, _ in state.tables.roles()}
    assert [
        name for name, table in vars(state).items() if isinstance(table, Table | dict) and id(table) not in declared
    ] == []


def test_only_tables_that_leave_otherwise_are_without_roles() -> None:
    """Entries of most of these leave with the leases that they count: a removal ends the leases first."""
    state = State()
    names = {id(table): name for name, table in vars(state).items()}
    assert {names[id(table)] for table, roles in state.tables.roles() if not roles} == {
        *("ck", "leases", "subs", "pins", "group_pins", "span_chunks", "spans", "clients"),
        *("attempts", "lite_attempts", "session_leases", "session_spans", "dead_blocked", "dead_blocked_count"),
        *("ids", "lite_ids", "purges", "walked", "purged", "counters", "schedules", "key_leases"),
    }


#: Tables whose keys name more than a subscription: their entries go with rows of the store, or with leases.
BY_ROW = {"tokens", "buckets", "waiting", "tied", "stopped", "locks", "stopped_numbers", "owners"}


@pytest.mark.parametrize("role", [TOPIC, GROUP, OWNER])
def test_a_forgotten_entity_is_in_no_table_and_others_stay(role: Role) -> None:
    state, before = filled(), keys_with(filled(), role, STAYS)
    for other in () if role is OWNER else (GONE, STAYS):
        state.forget_subscription((GroupId(GONE), TopicId(other))[:: 1 if role is GROUP else -1], (0, 1))  # type: ignore[arg-type]
    if role is TOPIC:
        state.forget_topic(TopicId(GONE))
    elif role is GROUP:
        state.forget_group(GroupId(GONE))
    else:
        state.forget_owner(GONE)
    assert keys_with(state, role, GONE) <= BY_ROW
    assert keys_with(state, role, STAYS) == before != set()


def test_a_subscription_that_is_forgotten_takes_only_its_own_keys() -> None:
    state = filled()
    state.forget_subscription((GroupId(GONE), TopicId(GONE)), (0,))
    left = [key for table, roles in state.tables.roles() if roles[:2] == (GROUP, TOPIC) for key in table]
    assert not [key for key in left if key[:2] == (GONE, GONE) and key[2:] == (0,)]
    assert {key[:2] for key in left if len(key) == 2} == {(GONE, STAYS), (STAYS, GONE), (STAYS, STAYS)}
    assert keys_with(state, OWNER, GONE) == keys_with(filled(), OWNER, GONE)


def busy(rig: Rig) -> None:
    """FIFO topic t and group g with entries in the tables whose entries go with rows."""
    rig.do(ask.CreateTopic("t", 2, False, KEEP, type="FIFO", send_messages_per_s=100, pop_messages_per_s=100))
    rig.group("g", stop_on_failure=True, max_attempts=1)
    rig.attach(lease_ms=SECOND, topic="t")
    for name in ("stopped", "leased", "sealed"):
        rig.do(ask.Send("t", tuple(fifo_message(name, f"{name}{number}") for number in range(3))))
        if name == "sealed":
            rig.seal(1, max_messages=1)
            rig.advance(2 * SECOND)
        elif name == "stopped":
            rig.release([row for row in rig.pop(20) if row.body == "stopped0"], delay_ms=0, reason="broken")
        else:
            rig.pop(20)
    state = rig.core.state
    assert keys_with(state, TOPIC, state.ids["t", "t"]) >= BY_ROW - {"owners", "tied"}
    assert keys_with(state, GROUP, state.ids["g", "g"]) >= BY_ROW - {"tied"}


@pytest.mark.parametrize("again", [False, True], ids=["", "after a restart"])
@pytest.mark.parametrize("role", [TOPIC, GROUP])
def test_a_removed_topic_or_group_is_in_no_table(make_rig: MakeRig, role: Role, again: bool) -> None:
    rig = make_rig()
    busy(rig)
    gone, name = (("t", "t"), ask.DeleteTopic("t")) if role is TOPIC else (("g", "g"), ask.DeleteGroup("g"))
    part = rig.core.state.ids[gone]
    rig.do(name)
    if again:
        rig.crash()
    rig.settle()
    assert keys_with(rig.core.state, role, part) == set()
    assert not any(
        key[1 if role is TOPIC else 0] == part for keys in rig.core.state.owner_tokens.values() for key in keys
    )


def test_a_removed_lite_topic_is_in_no_table(rig: Rig) -> None:
    lites.create(rig, "short", lite_ttl_ms=HOUR)
    lites.send(rig, "ann:1", "ann:2", topic="short")
    topic_id = rig.core.state.lite_ids[(TopicId(rig.core.state.ids["t", "short"]), "ann")]
    first = lites.pop(rig, "ann", topic="short", max_messages=1)
    rig.release(first)
    rig.ack(lites.pop(rig, "ann", topic="short"))
    rig.ack(lites.pop(rig, "ann", topic="short"))
    assert {"topics", "stat", "held", "poff", "passed", "queue_max"} <= keys_with(rig.core.state, TOPIC, topic_id)
    lites.wait(rig, HOUR)
    assert keys_with(rig.core.state, TOPIC, topic_id) == set()
