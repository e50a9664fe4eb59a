"""A table of the state, and a database of the store, is written in one module: its owner. Others ask it.

A write is an assignment to an entry, a method that changes the table, or handing the table on to a function. What
removes all entries of a deleted topic or group goes through all tables by the roles of their keys (store/tables.py),
and through the databases by their prefix (RANGES): it names none of them.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator

import pytest

from popmq_server.embedded.state.state import State
from tests.sources import ROOT, tree_of

EMBEDDED = ROOT / "server" / "popmq_server" / "embedded"
#: What runs without transactions: the store itself, check and repair of a stopped one, the scan at start, and the
#: declarations.
OUTSIDE = ("store/", "fsck/", "writer/rebase.py", "state/loading.py", "state/all_tables.py")
CHANGES = {"pop", "popitem", "setdefault", "update", "clear", "__setitem__", "__delitem__"}
#: Functions that only read a table that they are given.
READERS = {
    *("any", "bool", "dict", "iter", "len", "list", "map", "sorted", "tuple"),
    *("ReadyGroups", "_soonest", "sorted_numbers.after", "unseen.counts"),
}
#: Methods of a transaction of the store that change the database that is named first.
PUTS = {"put", "extend", "delete", "move"}
#: What removes ranges of databases that it is given by name.
RANGES = {"rules/topics/removal.py"}
#: A database with one row of each kind, which has an owner of its own.
ROWS_APART = {"meta"}

_STATE = State()
TABLES = frozenset(
    name for name, value in vars(_STATE).items() if any(value is table for table, _ in _STATE.tables.roles())
)


def table_of(node: ast.AST, aliases: dict[str, str], of_self: bool) -> str:
    """The table that an expression means: `state.topics`, `tx.state.topics`, or a name for one; else empty."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id, "")
    if isinstance(node, ast.Attribute) and node.attr in TABLES:
        holder = ast.unparse(node.value)
        if holder == "state" or holder.endswith(".state") or (of_self and holder == "self"):
            return node.attr
    return ""


def aliases_in(function: ast.AST, of_self: bool) -> dict[str, str]:
    """The names that a function gives to tables."""
    found = dict[str, str]()
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            pairs: list[tuple[ast.expr, ast.expr]] = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for name, value in pairs:
                if isinstance(name, ast.Name) and (table := table_of(value, {}, of_self)):
                    found[name.id] = table
    return found


def changed_by(node: ast.AST) -> list[ast.expr]:
    """The expressions that a node changes, or hands on to what may change them."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return [node.value]
    if isinstance(node, ast.Attribute) and node.attr in CHANGES:
        return [node.value]
    if isinstance(node, ast.Call) and ast.unparse(node.func) not in READERS:
        values = [*node.args, *(word.value for word in node.keywords)]
        return [part for value in values for part in (value.elts if isinstance(value, ast.Tuple) else [value])]
    if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple):
        return node.iter.elts
    return []


def written_tables(tree: ast.AST, *, of_self: bool = False) -> Iterator[tuple[str, int]]:
    """(table, line) of each write. `of_self`: the tables are attributes of the class."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        aliases = aliases_in(function, of_self)
        for node in ast.walk(function):
            for changed in changed_by(node):
                if table := table_of(changed, aliases, of_self):
                    yield table, changed.lineno


def written_databases(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(database, line) of each write; an empty name is one that only the running program knows."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PUTS:
            first = node.args[0] if ast.unparse(node.func.value).split(".")[-1] == "kv" else None
            if first is not None:
                yield str(first.value) if isinstance(first, ast.Constant) else "", node.lineno


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(EMBEDDED.rglob("*.py")):
        name = str(path.relative_to(EMBEDDED))
        if not name.startswith(OUTSIDE):
            yield name, tree_of(path)


Writers = dict[str, set[str]]


def writers_of_tables() -> Writers:
    found: Writers = defaultdict(set)
    for name, tree in modules():
        for table, _ in written_tables(tree, of_self=name == "state/state.py"):
            found[table].add(name)
    return found


def writers_of_databases() -> Writers:
    found: Writers = defaultdict(set)
    for name, tree in modules():
        for database, _ in written_databases(tree):
            if database not in ROWS_APART and (database or name not in RANGES):
                found[database].add(name)
    return found


def shared(writers: Writers) -> set[str]:
    """What several modules write, or nobody knows who."""
    return {name for name, where in writers.items() if len(where) > 1 or not name}


def test_a_table_is_written_in_one_module() -> None:
    writers = writers_of_tables()
    assert {name: writers[name] for name in shared(writers)} == {}


def test_a_database_is_written_in_one_module() -> None:
    writers = writers_of_databases()
    assert {name: writers[name] for name in shared(writers)} == {}


def test_every_table_has_an_owner() -> None:
    """One that nobody writes would be a table that the rule does not see."""
    assert set(writers_of_tables()) == TABLES


@pytest.mark.parametrize(
    ("code", "tables"),
    [
        ("tx.state.topics[1] = made", ["topics"]),
        ("del state.topics[1]", ["topics"]),
        ("self.tx.state.poff[1, 2] += 3", ["poff"]),
        ("tx.state.leases.pop(key)", ["leases"]),
        ("undo.note(state.moving.__setitem__, 1)", ["moving"]),
        ("state.trims.setdefault(1, 0)", ["trims"]),
        ("held, found = tx.state.held, 1\n    held[1] = 2", ["held"]),
        ("for table in (state.tied, state.waiting):\n        table.pop(1)", ["tied", "waiting"]),
        ("sorted_numbers.add(state.spans, 1)", ["spans"]),
        ("tx.state.topics[1].queues", []),
        ("state.topics.get(1)", []),
        ("len(state.topics)", []),
        ("self.topics[1] = made", []),
        ("answer.topics[1] = made", []),
    ],
)
def test_a_write_of_a_table_differs_from_a_read(code: str, tables: list[str]) -> None:
    found = written_tables(ast.parse(f"def function():\n    {code}"))
    assert [table for table, _ in found] == tables


@pytest.mark.parametrize(
    ("code", "databases"),
    [
        ('tx.kv.put("rq", key, value)', ["rq"]),
        ('kv.delete("rq", key)', ["rq"]),
        ('self.tx.kv.move("due", key, other)', ["due"]),
        ("tx.kv.delete(name, key)", [""]),
        ('tx.kv.get("rq", key)', []),
        ('store.put("rq", key, value)', []),
    ],
)
def test_a_write_of_a_database_differs_from_a_read(code: str, databases: list[str]) -> None:
    assert [name for name, _ in written_databases(ast.parse(code))] == databases
