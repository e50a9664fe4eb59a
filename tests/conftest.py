"""The settings of Hypothesis for all tests: the same examples in each run, but random ones in a campaign."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

WHOLE = os.environ.get("POPMQ_CAMPAIGN") == "whole"

settings.register_profile("short", deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
settings.register_profile("whole", deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
settings.load_profile("whole" if WHOLE else "short")

# A shell starts background jobs with SIGINT ignored, and child processes inherit that; tests send SIGINT to theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collects without the garbage collector: it finds nothing here, and takes a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
