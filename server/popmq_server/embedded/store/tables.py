"""The tables of the state, each declared once: its rows in the store, and the roles of the parts of its key.

    poff = tables.stored(packed("poff", POFF_KEY, U64.pack, u64), GROUP, TOPIC, QUEUE)

    stored      its rows are in one database of the store; `load` reads them all at start
    derived     follows from other tables; a loader in state.py computes it at start
    transient   in memory only; a restart begins without it

The code that removes a topic, a group or a subscription names its entries by role, so it need not know a new table:
`forget_keys` pops keys by their parts. It walks over no table, since each may have 100,000 entries of others.

A table with entries for leases, their chunks or their clients has no roles: the entries go when a removal ends those
leases. A walk over such a table would cost more with every message that others lease.
"""

import enum
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from popmq_server.embedded.store.row_formats import RowFormat, RowReader
from popmq_server.embedded.store.table import Changes, Item, Table


class Role(enum.Enum):
    """The kind of object that a part of a key names."""

    GROUP = "group"
    TOPIC = "topic"
    QUEUE = "queue"
    MESSAGE_GROUP = "message group"
    OWNER = "owner"
    OTHER = "other"


GROUP, TOPIC, QUEUE = Role.GROUP, Role.TOPIC, Role.QUEUE
MESSAGE_GROUP, OWNER, OTHER = Role.MESSAGE_GROUP, Role.OWNER, Role.OTHER


class _Declared(NamedTuple):
    table: Table[Item, Item] | dict[Item, Item]
    roles: tuple[Role, ...]
    rows: RowFormat | None = None
    transient: bool = False


class Tables:
    """All tables of a state, in the order in which they are flushed and loaded."""

    def __init__(self) -> None:
        self._declared: list[_Declared] = []
        self.changes = Changes()

    def stored(self, rows: RowFormat, *roles: Role) -> Table[Item, Item]:
        """A table with rows in the store."""
        return self._declare(Table(rows.store), roles, rows)

    def derived(self, *roles: Role) -> Table[Item, Item]:
        """A table that follows from others."""
        return self._declare(Table(), roles)

    def transient(self, *roles: Role) -> Table[Item, Item]:
        """A table that a restart drops."""
        return self._declare(Table(), roles, transient=True)

    def transient_dict(self, *roles: Role) -> dict[Item, Item]:
        """A dict that a restart drops. It has no uncommitted layer: an abort does not undo its changes."""
        table: dict[Item, Item] = {}
        self._declared.append(_Declared(table, roles, transient=True))
        return table

    def add(self, table: Table[Item, Item]) -> None:
        """A table of its own kind, which loads itself and leaves with the leases: checkpoints.py."""
        self._declare(table, ())

    def _declare(
        self, table: Table[Item, Item], roles: tuple[Role, ...], rows: RowFormat | None = None, transient: bool = False
    ) -> Table[Item, Item]:
        table.changes = self.changes
        self._declared.append(_Declared(table, roles, rows, transient))
        return table

    def with_layers(self) -> list[Table[Item, Item]]:
        """All tables with an uncommitted layer."""
        return [one.table for one in self._declared if isinstance(one.table, Table)]

    def with_rows(self) -> list[Table[Item, Item]]:
        """The tables that write their changes to the store."""
        return [table for table in self.with_layers() if table.has_rows]

    def lasting(self) -> Iterator[Table[Item, Item]]:
        """The tables that a restart restores as they were."""
        return (one.table for one in self._declared if isinstance(one.table, Table) and not one.transient)

    def load(self, reader: RowReader) -> None:
        """Loads the tables that have rows."""
        for one in self._declared:
            if one.rows is not None and isinstance(one.table, Table):
                one.table.load_all(dict(one.rows.read(reader)))

    def roles(self) -> Iterator[tuple[Table[Item, Item] | dict[Item, Item], tuple[Role, ...]]]:
        """All tables, with the roles of the parts of their keys; no roles: nothing is forgotten by role."""
        return ((one.table, one.roles) for one in self._declared)

    def forget_keys(self, parts: Mapping[Role, Iterable[Item]], *named: Role) -> None:
        """Removes the keys made of `parts` from each table that has the roles `named` and no role without parts."""
        for table, roles in self.roles():
            if roles and parts.keys() >= set(roles) >= set(named):
                keys = itertools.product(*(parts[role] for role in roles))
                for key in keys:
                    _pop(table, key if len(roles) > 1 else key[0])


def _pop(table: Table[Item, Item] | dict[Item, Item], key: Item) -> None:
    if key in table:
        table.pop(key)
