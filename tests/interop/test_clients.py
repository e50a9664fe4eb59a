"""The official clients as published, each in its own process, against a broker in its own: the scenarios' outcomes.

`make test-wide` runs a few scenarios of the Python client, and a send and receive of Node, Go and Java; `make interop`
runs everything, also Rust, whose client takes minutes to build. A scenario that a client or the server lacks a feature
for is skipped, naming the feature. What is known to differ at a gateway, or at RocketMQ's proxy, is in cluster.json.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from tests.interop.builds import BUILDS
from tests.interop.kept import cluster, word
from tests.interop.running import Result
from tests.interop.scenarios import SCENARIOS, Scenario
from tests.interop.servers import EMBEDDED

#: What these languages run in `make test-wide`.
BRIEF = "send_and_receive"
BRIEFLY = ("node", "go", "java")
#: What the Python client runs there too: every kind of call once.
OF_PYTHON = (BRIEF, "tags", "recall", "namespaces", "dead_letter", "lease_changed", "check_back", "restart", "many")


def _marks(client: str, scenario: Scenario) -> list[pytest.MarkDecorator]:
    brief = OF_PYTHON if client == "python" else (BRIEF,) if client in BRIEFLY else ()
    return [pytest.mark.polyglot if scenario.name in brief else pytest.mark.interop]


def _cases() -> Iterator[Any]:
    for client in BUILDS:
        for scenario in SCENARIOS.values():
            yield pytest.param(client, scenario.name, id=f"{client}-{scenario.name}", marks=_marks(client, scenario))


def _differing(kind: str) -> set[str]:
    """The scenarios that are known to differ at a gateway or proxy, with one client at least."""
    known = {} if kind == EMBEDDED else cluster(kind)
    return {
        name
        for name, clients in known.items()
        for client, outcome in clients.items()
        if word(client, name, outcome) in ("differs", "failed")
    }


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(2700)  # the first of a language waits for its build: Rust took 15 minutes beside other work
@pytest.mark.parametrize(("client", "name"), list(_cases()))
def test_the_outcome_is_what_users_of_the_client_expect(
    client: str,
    name: str,
    kind: str,
    begun: dict[tuple[str, str], Future[Result]],
    record_property: Callable[[str, object], None],
) -> None:
    result, expected = begun[client, name].result(), SCENARIOS[name].expected(client)
    record_property("interop", (client, name, result.word(expected)))
    if result.skipped:
        pytest.skip(result.skipped)
    if result.outcome != expected and name in _differing(kind):
        pytest.xfail("it is known to differ here")
    assert not result.failed, result.failed
    assert result.outcome == expected
