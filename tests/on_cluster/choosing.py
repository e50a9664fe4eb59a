"""Which tests run on a cluster, and why the others do not. A plugin of pytest, where POPMQ_ON_CLUSTER names a cluster.

left out   tests that make their engine themselves, or need none: they say nothing about a cluster
skipped    a fake clock, the store, parts of the embedded engine         by the fixtures that they name
           @pytest.mark.promise("dedup")      a weaker promise of the engine (cluster/promises.py)
           @pytest.mark.embedded("…")         what only the embedded engine has; `only`: the cases with these ids
           @pytest.mark.capability("lite")    what the engine lacks, where a test would wait in vain after a refusal
           what was refused as a missing capability, and so failed        the skip names the capability
"""

import collections
from collections.abc import Generator, Iterator
from typing import Any
from unittest import mock

import pytest

from popmq_server.cluster import promises
from popmq_server.contract import limited
from popmq_server.contract.capabilities import Capability
from popmq_server.errors import Refused

#: A test with one of these talks to the engine that the fixtures serve.
ENGINES = frozenset(("broker", "popmq_broker"))
#: What brokers in other processes do not have, by the fixtures that move or read it.
EMBEDDED = {
    "popmq_clock": "a clock that tests move",
    "advance": "a clock that tests move",
    "clock": "a clock that tests move",
    "folder": "a folder with the store",
    "gate": "the writer of the embedded engine",
    "parked": "the waiters of the embedded engine",
    "left": "the streams of the embedded engine",
    "gateway": "brokers that are fake",
    "second": "an engine that is a stub",
}
#: These are requested by other fixtures for the sake of the embedded engine, and count only where a test names them.
NAMED_ONLY = frozenset(("clock", "folder"))


class Choosing:
    """`missing`: capabilities that the running test was refused, in their order."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        self.skips: collections.Counter[str] = collections.Counter()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        served = [item for item in items if ENGINES.intersection(_fixtures(item))]
        others = [item for item in items if not ENGINES.intersection(_fixtures(item))]
        config.hook.pytest_deselected(items=others)
        items[:] = served
        for item in served:
            if why := _why_not(item):
                item.add_marker(pytest.mark.skip(reason=why))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        del item
        self.missing.clear()
        with mock.patch.object(limited, "unsupported", self._noting(limited.unsupported)):
            return (yield)

    def _noting(self, unsupported: Any) -> Any:
        def noted(missing: Capability, engine: str) -> Refused:
            self.missing.append(missing.name)
            refused: Refused = unsupported(missing, engine)
            return refused

        return noted

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        report = yield
        if report.when in ("setup", "call") and report.failed and self.missing:
            report.outcome = "skipped"
            path, line, _ = item.location
            report.longrepr = (path, line or 0, f"Skipped: the engine lacks {self.missing[0]}")
        if report.skipped and isinstance(report.longrepr, tuple):
            self.skips[report.longrepr[2].removeprefix("Skipped: ")] += 1
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        counts: collections.Counter[str] = collections.Counter()
        for report in terminalreporter.stats.get("skipped", []):
            counts[report.longrepr[2].removeprefix("Skipped: ")] += 1
        for why, count in counts.most_common():
            terminalreporter.write_line(f"{count:5} skipped: {why}")


def _fixtures(item: pytest.Item) -> frozenset[str]:
    return frozenset(getattr(item, "fixturenames", ()))


def _cases_of(item: pytest.Item) -> frozenset[str]:
    """The ids of the parameters of a test."""
    spec = getattr(item, "callspec", None)
    return frozenset(spec.id.split("-")) if spec is not None else frozenset()


def _why_not(item: pytest.Item) -> str:
    """Why a test cannot run on a cluster; "" if it can."""
    for mark in item.iter_markers("promise"):
        (name,) = mark.args
        assert name in promises.WEAKER, f"{item.nodeid}: {name!r} is no promise that is weaker on a cluster"
        return f"the promise {name} is weaker"
    for mark in item.iter_markers("capability"):
        (name,) = mark.args
        assert name in promises.info().lacking, f"{item.nodeid}: a cluster does not lack {name!r}"
        return f"the engine lacks {name}"
    for mark in item.iter_markers("embedded"):
        (what,) = mark.args
        if mark.kwargs and not _cases_of(item).intersection(mark.kwargs["only"]):
            continue
        return f"only the embedded engine has {what}"
    named = frozenset(item._fixtureinfo.argnames)  # type: ignore[attr-defined]
    for fixture, what in EMBEDDED.items():
        if fixture in (named if fixture in NAMED_ONLY else _fixtures(item)):
            return f"needs {what}"
    return ""
