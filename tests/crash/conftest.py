"""Campaigns are short in `make test-all` and long in `make chaos`; both end with a table of what they did."""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from popmq_verify.powercut import no_shim

TABLES = pytest.StashKey[list[str]]()


@dataclass(frozen=True)
class Scale:
    """How much of a campaign to run, and from which seed. POPMQ_SEED repeats one that failed."""

    whole: bool
    seed: int

    def pick(self, short: int, whole: int) -> int:
        return whole if self.whole else short


@pytest.fixture(scope="session")
def scale() -> Scale:
    seed = int(os.environ.get("POPMQ_SEED") or random.SystemRandom().randrange(2**32))
    return Scale(os.environ.get("POPMQ_CAMPAIGN") == "whole", seed)


@pytest.fixture
def shim() -> None:
    """Skips a test that needs the shim, if the shim cannot be built here."""
    if why := no_shim():
        pytest.skip(why)


@pytest.fixture
def show(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Keeps a table for the end of the run, where it is printed even with -q."""
    return request.config.stash.setdefault(TABLES, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for table in config.stash.get(TABLES, []):
        terminalreporter.write_line("")
        terminalreporter.write_line(table)
