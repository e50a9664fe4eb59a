"""How each invariant is broken once: a scene with a broker, damage to its memory, its store or its code, and a command.

    @breaks("queue_leases_counted")
    def _(scene):
        rows = scene.leased("a")
        scene.state.in_flight.load((*scene.where, 0), 0)      the damage
        return acking(rows)                                   the command that meets it; None: a job does

test_breaking.py runs the command alone and between two neighbours; test_at_start.py starts a broker on a damaged store.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract import commands as ask
from popmq_server.contract.operations import Operation
from popmq_server.embedded.state.state import State
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store import checkpoint
from popmq_server.embedded.store.checkpoint import CheckPoint
from popmq_server.embedded.store.keys import DATABASES, U64
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.store.table import Item, StoredTable, Table
from popmq_server.embedded.writer import core
from popmq_server.values.ids import GroupTopic
from popmq_server.values.records import Schedule
from tests.engine.rig import HOUR, Delivery, Rig

Broken = Callable[["Scene"], Operation[Any] | None]


class Case(NamedTuple):
    """One way to break an invariant."""

    name: str
    damage: Broken


CASES: list[Case] = []


def breaks(name: str) -> Callable[[Broken], Broken]:
    """Adds a way to break an invariant."""

    def add(damage: Broken) -> Broken:
        CASES.append(Case(name, damage))
        return damage

    return add


def acking(rows: Iterable[Delivery]) -> ask.Ack:
    return ask.Ack("g", tuple(row.handle for row in rows))


def changing(rows: Iterable[Delivery], kind: str, **how: Any) -> ask.ChangeInvisibleTime:
    return ask.ChangeInvisibleTime("g", tuple(ask.Change(row.handle, kind, **how) for row in rows))


class Scene:
    """A broker, and what damages it."""

    def __init__(self, rig: Rig, patch: pytest.MonkeyPatch) -> None:
        self.rig = rig
        self.patch = patch

    @property
    def state(self) -> State:
        return self.rig.core.state

    @property
    def topic(self) -> int:
        """The id of topic t."""
        return self.state.ids[("t", "t")]

    @property
    def group(self) -> int:
        """The id of group g."""
        return self.state.ids[("g", "g")]

    @property
    def where(self) -> GroupTopic:
        """Group g in topic t."""
        return (self.group, self.topic)  # type: ignore[return-value]

    def leased(self, *texts: str, **asked: Any) -> list[Delivery]:
        """Messages of topic t that group g has leased for an hour."""
        if ("t", "t") not in self.state.ids:
            self.rig.pair()
        self.rig.send(*texts)
        return self.rig.pop(len(texts), **{"invisible_ms": HOUR} | asked)

    def sealed(self, *texts: str) -> None:
        """The same of owner o, under the token of epoch 1."""
        self.rig.pair()
        self.rig.send(*texts)
        self.rig.attach()
        self.rig.seal(1)

    def scheduled(self) -> Schedule:
        """Schedule s, which sends to topic t each hour."""
        self.rig.topic()
        message = ask.NewMessage(pb.Message(message_id="s", body=b"tick").SerializeToString(), "", "s", ())
        made: Schedule = self.rig.do(ask.CreateSchedule("s", "0 * * * *", "UTC", "t", "ONCE", message))[0]
        return made

    # ── Damage ───────────────────────────────────────────────────────────────────────────────────────────────────

    def clear(self, *tables: Table[Any, Any]) -> None:
        """Empties tables in memory."""
        for table in tables:
            table.load_all({})

    def forget(self) -> None:
        """Lets the next look at a lease or a CheckPoint read the store."""
        for table in (self.state.ck, self.state.leases):
            assert isinstance(table, StoredTable)
            table._base.clear()
            table._older.clear()

    def change(self, table: str, value: Callable[[bytes], bytes | None], at: int = 0) -> None:
        """Changes a row of the store: the value of the `at`-th key; None removes it."""
        key, raw = self.rig.read(table)[at]
        self.put(table, key, value(raw))

    def put(self, table: str, key: bytes, value: bytes | None) -> None:

        def change(kv: Transaction) -> None:
            if value is None:
                kv.delete(table, key)
            else:
                kv.put(table, key, value)

        self.rig.write(change)
        self.forget()

    def empty(self, table: str) -> None:
        """Removes all rows of a database."""
        for key, _ in self.rig.read(table):
            self.put(table, key, None)

    def checkpoint(self, **fields: Any) -> None:
        """Changes the first CheckPoint in the store."""

        def changed(raw: bytes) -> bytes:
            ck: CheckPoint = checkpoint.decode(1, memoryview(raw))
            return checkpoint.encode(dataclasses.replace(ck, **fields))

        self.change("ck", changed)

    @property
    def ck_id(self) -> int:
        """The id of the first CheckPoint."""
        return int(U64.unpack(self.rig.read("ck")[0][0])[0])

    def numbers(self, **counters: int) -> None:
        """Sets the numbers that are given next."""
        self.state.counters.load("", self.state.counters[""]._replace(**counters))

    def count(self, table: Table[Any, Any], key: Item, **fields: Any) -> None:
        """Sets fields of a record in memory."""
        table.load(key, table[key]._replace(**fields))

    def bug(self, where: Any, name: str, wrong: Callable[..., Any]) -> None:
        """Replaces a function of the broker by a wrong one, which gets the right one first."""
        right = getattr(where, name)
        self.patch.setattr(where, name, lambda *given, **named: wrong(right, *given, **named))

    def step(self, function: Callable[[Tx], object]) -> Operation[Any]:
        """A command whose handler is this function: a bug that calls a module with what it must not get."""
        self.patch.setitem(core.HANDLERS, ask.ForgetResults, lambda tx, _: function(tx))
        return ask.ForgetResults("g", ())

    def rows(self, without: tuple[str, ...] = ()) -> dict[str, list[tuple[bytes, bytes]]]:
        """All of the store."""
        return {name: self.rig.read(name) for name in DATABASES if name not in without}
