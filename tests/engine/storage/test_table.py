"""Overlay tables: what a transaction changes is seen by itself only, until it is merged or dropped."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from popmq_server.embedded.store.table import Table

keys = st.integers(0, 4)
values = st.integers(0, 9)


class TableMachine(RuleBasedStateMachine):
    """Two dicts are the model: what is committed, and what the transaction sees."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[int, int] = {}
        self.changes: list[tuple[int, int | None, int | None]] = []
        self.table: Table[int, int] = Table(lambda tx, key, before, now: self.changes.append((key, before, now)))
        self.committed: dict[int, int] = {}
        self.seen: dict[int, int] = {}

    @rule(key=keys, value=values)
    def put(self, key: int, value: int) -> None:
        self.table[key] = value
        self.seen[key] = value

    @rule(key=keys)
    def remove(self, key: int) -> None:
        self.table.pop(key)
        self.seen.pop(key, None)

    @rule()
    def commit(self) -> None:
        self.table.flush(None)  # type: ignore[arg-type]
        self.table.merge()
        for key, before, now in self.changes:
            assert before == self.committed.get(key)
            if now is None:
                del self.stored[key]  # a removal is written only for what is there
            else:
                self.stored[key] = now
        self.changes.clear()
        self.committed = dict(self.seen)
        assert self.stored == self.committed

    @rule()
    def abort(self) -> None:
        self.table.drop()
        self.seen = dict(self.committed)

    @rule(key=keys, value=values)
    def change_while_reading(self, key: int, value: int) -> None:
        for found in list(self.table):
            if found == key:
                self.put(key, value)

    @invariant()
    def a_transaction_sees_its_own_changes_and_nobody_else_does(self) -> None:
        assert dict(self.table.items()) == self.seen
        assert sorted(self.table) == sorted(self.seen)
        assert sorted(self.table.values()) == sorted(self.seen.values())
        assert [self.table.get(key) for key in range(5)] == [self.seen.get(key) for key in range(5)]
        assert [key in self.table for key in range(5)] == [key in self.seen for key in range(5)]
        assert self.table.committed() == self.committed


@pytest.mark.slow
def test_a_table_is_a_dict_with_a_layer_that_can_be_dropped() -> None:
    run_state_machine_as_test(TableMachine)


def test_every_change_is_counted_so_that_an_abort_knows_whether_anything_was_touched() -> None:
    table: Table[str, int] = Table()
    before = table.changes.count
    table["a"] = 1
    table.pop("a")
    table.pop("never there")
    assert table.changes.count == before + 3
    assert not table.changed or dict(table.items()) == {}


def test_a_table_without_a_store_writes_nothing() -> None:
    table: Table[str, int] = Table()
    table["a"] = 1
    table.flush(None)  # type: ignore[arg-type]
    table.merge()
    assert table.committed() == {"a": 1}
