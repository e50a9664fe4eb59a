"""Chooses the tests of `make check-fast`: those of what changed since main, the rules of the tree, and one smoke test.

    python scripts/changed_tests.py      arguments for pytest; none means all tests

A file belongs to the tests of its area, and to every test module that imports it. If a changed file has no area here,
or if there is no main to compare with, all tests run: a change is never passed over. `make test` always runs all.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: An import statement, by a regular expression: parsing all tests takes three seconds.
IMPORT = re.compile(r"^ *(?:from (\S+) )?import (\([^)]*\)|.+)$", re.MULTILINE)
#: Both protocols, both engines, SDK and command line in a second or two.
SMOKE = "tests/wire/test_both_engines.py"
#: The pages that run on a broker: ten seconds, for what a page names or imports.
PAGES = "tests/test_docs.py::test_the_pages_read_one_after_the_other_work_on_one_broker"
ON_PAGES = ("docs/", "README.md", "sdk/", "tests/test_docs.py", "tests/prose.py")

ENGINE = "tests/engine"
CORE = (f"{ENGINE}/delivery", f"{ENGINE}/sending", f"{ENGINE}/storage")
#: What lies below a folder is tested in these; the longest name counts. The rest of the tree has no area: its changes
#: reach everything.
AREAS: dict[str, tuple[str, ...]] = {
    "bench/": ("tests/bench", "tests/release"),
    "demo/": ("tests/spark",),
    "deploy/": ("tests/release",),
    "examples/airflow/": ("tests/integrations/airflow",),
    "examples/django/": ("tests/integrations/django",),
    "examples/outbox.py": ("tests/outbox",),
    "examples/settle.py": ("tests/sdk/workers",),
    "examples/snooze.py": ("tests/sdk/workers",),
    "examples/time_limit.py": ("tests/sdk/workers",),
    "examples/dramatiq_app.py": ("tests/integrations/dramatiq",),
    "examples/taskiq_app.py": ("tests/integrations/taskiq",),
    "examples/results.py": ("tests/sdk/workers",),
    "examples/fair_keys.py": ("tests/sdk/asking/test_fair_keys.py",),
    "docs/": ("tests/release", "tests/wire/test_documents.py", "tests/spark/test_docs.py"),
    "http2/": ("tests/http2", "tests/wire/serving"),
    "remoting/": ("tests/remoting",),
    "harness/mariadb.py": ("tests/outbox",),
    "harness/postgresql.py": ("tests/outbox",),
    "scripts/": ("tests/release",),
    "sdk/popmq/": ("tests/sdk", "tests/outbox"),
    "sdk/popmq_cli/": ("tests/cli",),
    "sdk/popmq_console/": ("tests/console",),
    "sdk/popmq_integrations/": ("tests/integrations",),
    "server/popmq_server/cluster/": ("tests/cluster",),
    "server/popmq_server/embedded/": (ENGINE,),
    **{
        f"server/popmq_server/embedded/rules/{wing}/": (f"{ENGINE}/{wing}", *CORE)
        for wing in ("inspect", "lite", "operate", "pulling", "results", "retention", "schedules")
    },
    "server/popmq_server/embedded/fsck/": (f"{ENGINE}/fsck", f"{ENGINE}/datafile", *CORE),
    "server/popmq_server/monitoring/": (f"{ENGINE}/monitoring", "tests/wire/serving"),
    "server/popmq_server/process/": ("tests/wire/serving", "tests/wire/workers", "tests/crash"),
    "server/popmq_server/protocols/": ("tests/wire",),
    "server/popmq_server/protocols/access/": ("tests/wire/access", "tests/wire/refusing"),
    "server/popmq_server/protocols/native/": tuple(
        f"tests/wire/{part}" for part in ("delivering", "reading", "refusing", "sending")
    ),
    "server/popmq_server/protocols/rocketmq/": ("tests/wire/rocketmq", "tests/wire/delivering", "tests/wire/reading"),
    "server/popmq_verify/": ("tests/crash",),
    "spark_connector/": ("tests/spark",),
    **{f"tests/{area}/": (f"tests/{area}",) for area in ("bench", "cli", "cluster", "console", "crash", "engine")},
    **{
        f"tests/{area}/": (f"tests/{area}",)
        for area in ("http2", "integrations", "outbox", "release", "remoting", "sdk")
    },
    **{f"tests/{area}/": (f"tests/{area}",) for area in ("spark", "wire")},
    **{f"tests/{helper}.py": ("tests/release",) for helper in ("layers", "prose", "sources")},
    **{f"{page}.md": ("tests/release",) for page in ("ARCHITECTURE", "BENCHMARKS", "CHANGELOG", "CONTRIBUTING")},
    **{f"{page}.md": ("tests/release",) for page in ("README", "SECURITY")},
}


def git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.split("\0" if "-z" in words else None) if done.returncode == 0 else []


def changed() -> set[str] | None:
    """The files that differ from main, also new ones and those that are gone; None without a main."""
    for main in ("origin/main", "main"):
        if base := git("merge-base", "HEAD", main):
            new = git("ls-files", "-z", "--others", "--exclude-standard")
            return {*git("diff", "-z", "--name-only", "--no-renames", base[0]), *new} - {""}
    return None


def modules_of(path: str) -> Iterator[str]:
    """The names under which a file can be imported: in a package of the wheel, or from the root."""
    parts = [part for part in Path(path).with_suffix("").parts if part != "__init__"]
    if path.endswith(".py") and len(parts) > 1:
        yield from (".".join(parts), ".".join(parts[1:]))


@cache
def imported() -> dict[str, set[str]]:
    """Test module → the names that it imports."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        names = found.setdefault(path.relative_to(ROOT).as_posix(), set())
        for package, listed in IMPORT.findall(path.read_text()):
            words = re.findall(r"[\w.]+", re.sub(r"#.*| as \w+", "", listed))
            names.update([package, *(f"{package}.{word}" for word in words)] if package else words)
    return found


def tests_of(path: str) -> set[str] | None:
    """The tests of a file; None for one that has no area."""
    if path.startswith("tests/") and Path(path).match("test_*.py"):
        return {path} if (ROOT / path).exists() else set()
    areas = [area for area in AREAS if path == area or (area.endswith("/") and path.startswith(area))]
    if not areas:
        return None
    names = set(modules_of(path))
    return {*AREAS[max(areas, key=len)], *(test for test, used in imported().items() if used & names)}


def chosen(files: Iterable[str]) -> list[str]:
    """Arguments for pytest; none for all tests."""
    files = sorted(files)
    tests = {SMOKE, *(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").glob("test_*.py"))}
    for path in files:
        found = tests_of(path)
        if found is None:
            return []
        tests |= found
    if find_spec("pyspark") is None:  # tests/conftest.py leaves out the rest
        tests = {test for test in tests if not test.startswith("tests/spark/")}
    nested = {test for test in tests if any(test.startswith(f"{other}/") for other in tests)}
    pages = [] if any(path.startswith(ON_PAGES) for path in files) else [f"--deselect={PAGES}"]
    return [*sorted(tests - nested), *pages]


def main() -> None:
    files = changed()
    arguments = [] if files is None else chosen(files)
    areas = " ".join(each for each in arguments if not each.startswith(("-", "tests/test_"))) or "all quick tests"
    since = "no main to compare with" if files is None else f"{len(files)} files changed since main"
    print(f"check-fast: {since}: {areas}", file=sys.stderr)
    print(" ".join(arguments))


if __name__ == "__main__":
    main()
