"""Starts the scenarios of a module together, and prints the table at the end of `make interop`."""

import os
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.interop.builds import NoTools
from tests.interop.kept import table
from tests.interop.running import Result, Runs
from tests.interop.scenarios import SCENARIOS
from tests.interop.servers import EMBEDDED, servers

Futures = dict[tuple[str, str], Future[Result]]


@pytest.fixture(scope="session")
def kind() -> str:
    """What the scenarios run on: embedded, gateway or proxy. `make interop TARGET=gateway` sets the variable."""
    return os.environ.get("POPMQ_INTEROP") or EMBEDDED


@pytest.fixture(scope="module")
def begun(kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Futures]:
    """Starts all selected scenarios of the module at once, since they mostly wait."""
    folder = tmp_path_factory.mktemp("interop")
    try:
        runs = Runs(folder, servers(kind, folder))
    except NoTools as missing:
        pytest.skip(str(missing))
    items = (item for item in request.session.items if item.path == request.path)
    cases = [item.callspec.params for item in items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
    pairs = [(str(case["client"]), str(case["name"])) for case in cases]
    yield {(client, name): runs.begin(client, SCENARIOS[name]) for client, name in pairs}
    runs.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Clients and scenarios at a glance, when several clients ran."""
    words: dict[tuple[str, str], str] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            told = dict(getattr(report, "user_properties", ())).get("interop")
            if told:
                words[told[0], told[1]] = told[2]
    if len({client for client, _ in words}) > 1:
        terminalreporter.section("official clients × scenarios")
        terminalreporter.write_line(table(words))
