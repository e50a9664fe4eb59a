"""Settings for all tests. Hypothesis draws the same examples in each run, but random ones in a campaign."""

import ctypes
import gc
import logging
import os
import platform
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent.parent
WHOLE = os.environ.get("POPMQ_CAMPAIGN") == "whole"

settings.register_profile("short", deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
settings.register_profile("whole", deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
settings.load_profile("whole" if WHOLE else "short")

# A shell starts background jobs with SIGINT and SIGQUIT ignored, nohup its program with SIGHUP, and child processes
# inherit that; tests send these signals to theirs.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


#: `make setup-core` installs no Spark. Tests that need it are left out there, and every run says so. They have the
#: marker `whole`, or are in these files and folders, which import it.
WITHOUT_SPARK = find_spec("pyspark") is None
OF_SPARK = ("tests/spark", "tests/sdk/pulling/test_tables.py")

#: The system call get_robust_list(2) by machine.
GET_ROBUST_LIST = {"x86_64": 274, "aarch64": 100}.get(platform.machine()) if sys.platform == "linux" else None


def holds_a_lock() -> bool:
    """Whether this thread holds a lock that survives processes, as LMDB takes for a write transaction."""
    if GET_ROBUST_LIST is None:
        return False
    head, size = ctypes.c_void_p(), ctypes.c_size_t()
    ctypes.CDLL(None).syscall(GET_ROBUST_LIST, 0, ctypes.byref(head), ctypes.byref(size))
    return bool(head.value) and ctypes.c_void_p.from_address(head.value or 0).value != head.value


if os.environ.get("POPMQ_ON_CLUSTER"):  # host:port of a name server: see tests/on_cluster/engine.py

    def pytest_configure(config: pytest.Config) -> None:
        """Here, not in `pytest_plugins`: only the conftest of the root folder may name those."""
        from tests.on_cluster import choosing, engine

        config.pluginmanager.register(choosing.Choosing())
        config.pluginmanager.register(engine, "on_cluster")


@pytest.fixture(autouse=True)
def _logs_stay_on() -> Iterator[None]:
    """A test that changes what is logged fails itself, and not those behind it that read logs."""
    root = logging.getLogger()
    before = root.level, logging.root.manager.disable
    yield
    after = root.level, logging.root.manager.disable
    root.setLevel(before[0])
    logging.disable(before[1])
    assert after == before, "this test left another level of logs behind"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """A module that leaves a write transaction of LMDB open fails itself, and not a later one that opens a store.

    The lock of a write transaction is in a list that the C library keeps for each thread. If the garbage collector
    drops the transaction in another thread, the lock stays in that list, its memory is unmapped, and the next lock that
    the thread takes writes there.
    """
    yield
    if nextitem is None or nextitem.path != item.path:
        assert not holds_a_lock(), f"{item.path} left a write transaction of LMDB open: close its store"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Does not import what would fail to import. None: others decide."""
    inside = WITHOUT_SPARK and any(collection_path.is_relative_to(ROOT / path) for path in OF_SPARK)
    return True if inside else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if WITHOUT_SPARK and item.get_closest_marker("whole")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if WITHOUT_SPARK:
        places = ", ".join(OF_SPARK)
        terminalreporter.write_line(f"left out without Spark (make setup installs it): {places}, the marker `whole`")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collects without the garbage collector: it finds nothing here, and takes a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
