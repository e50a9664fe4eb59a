"""What a reader can hold: how long a file is, how many modules a folder has, and that no modules import each other."""

import re
from pathlib import Path

import pytest

from tests.sources import EVERYTHING, PACKAGES, ROOT, imports, marked, sources, tree_of

FILE_LINES_MAX = 500
MODULES_MAX = 15


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in sources(*EVERYTHING)}
    assert {path: lines for path, lines in lengths.items() if lines > FILE_LINES_MAX and path not in marked()} == {}


def test_exactly_the_modules_that_a_program_writes_are_marked_as_generated() -> None:
    """By their first lines. What is marked is left out by reviews and by whoever counts lines."""
    modules = {path.relative_to(ROOT).as_posix(): path for tree in EVERYTHING for path in (ROOT / tree).rglob("*.py")}
    modules |= {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "sdk").rglob("*.pyi")}
    heads = {name: "\n".join(path.read_text().splitlines()[:2]) for name, path in modules.items()}
    written = {name for name, head in heads.items() if re.search("^# (Written|Generated) by", head, re.MULTILINE)}
    assert {name for name in marked() if name in modules} == written
    assert any(name.startswith("sdk/popmq/_sync/") for name in written)
    assert any(name.endswith("_pb2_grpc.py") for name in written)


# Trees in which no folder has more modules than a reader can hold in view; the packages of the wheel first.
ROOMY = (*PACKAGES, "bench", "demo", "harness", "tests")


def folders_of(tree: str) -> set[Path]:
    """The folders with our own modules below a tree."""
    return {path.parent for path in sources(tree)}


@pytest.mark.parametrize("tree", ROOMY)
def test_no_folder_has_more_modules_than_a_reader_can_hold(tree: str) -> None:
    modules = {folder: sum(path.name != "__init__.py" for path in folder.glob("*.py")) for folder in folders_of(tree)}
    assert {folder: count for folder, count in modules.items() if count > MODULES_MAX} == {}


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import each other or such modules; empty when no import leads back."""
    left = dict(graph)
    while free := [module for module, needed in left.items() if not needed & left.keys()]:
        for module in free:
            del left[module]
    return sorted(left)


#: The one import of a type checker that may lead back: a command without its place in the list of all commands is an
#: error where it is declared, so the declaration refers to the list.
LISTS = ("popmq_server.contract.operations", "popmq_server.contract.commands")


def import_graph(folder: str) -> dict[str, set[str]]:
    """Module → the modules of the same package that it imports; imports for type checkers count too, but LISTS."""
    paths = {".".join(path.relative_to(ROOT).with_suffix("").parts[1:]): path for path in sources(folder)}
    graph = {}
    for module, path in paths.items():
        names = {found.name for found in imports(path.relative_to(ROOT).as_posix(), tree_of(path))}
        graph[module] = (names | {name.rpartition(".")[0] for name in names}) & paths.keys()
        if module == LISTS[0]:
            graph[module] = {name for name in graph[module] if not name.startswith(LISTS[1])}
    return graph


@pytest.mark.parametrize(
    "folder",
    [
        *("sdk/popmq", "sdk/popmq_cli", "sdk/popmq_console", "sdk/popmq_integrations"),
        *("server/popmq_server", "server/popmq_verify"),
        *("http2/popmq_http2", "remoting/popmq_remoting", "spark_connector/popmq_spark", "bench"),
    ],
)
def test_no_modules_import_each_other(folder: str) -> None:
    assert cycle(import_graph(folder)) == []


def package_graph(graph: dict[str, set[str]], depth: int) -> dict[str, set[str]]:
    """The same of packages: modules whose first `depth` names are equal stand as one; a root's modules stand alone."""
    together: dict[str, set[str]] = {}
    for module, needed in graph.items():
        package, *others = (".".join(each.split(".")[:depth]) for each in (module, *sorted(needed)))
        together.setdefault(package, set()).update(others)
    return {package: needed - {package} for package, needed in together.items()}


@pytest.mark.parametrize(
    ("folder", "depth"),
    [
        ("sdk/popmq", 2),
        ("sdk/popmq_cli", 2),
        ("sdk/popmq_console", 2),
        ("server/popmq_verify", 2),
        ("http2/popmq_http2", 2),
        ("remoting/popmq_remoting", 2),
        ("spark_connector/popmq_spark", 2),
        ("bench", 1),
    ],
)
def test_no_packages_import_each_other(folder: str, depth: int) -> None:
    assert cycle(package_graph(import_graph(folder), depth)) == []


def test_a_cycle_of_packages_is_noticed() -> None:
    graph = {"p.a.x": {"p.b.x"}, "p.a.y": set[str](), "p.b.x": set[str](), "p.b.y": {"p.a.y"}}
    assert cycle(graph) == []
    assert cycle(package_graph(graph, 2)) == ["p.a", "p.b"]


def test_a_cycle_of_imports_is_noticed() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]
