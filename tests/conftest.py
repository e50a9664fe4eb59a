"""What all tests share: how Hypothesis searches. By default it repeats the same examples; a campaign rolls dice."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.mechanisms import COLLECTED

WHOLE = os.environ.get("POPMQ_CAMPAIGN") == "whole"

settings.register_profile("short", deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
settings.register_profile("whole", deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
settings.load_profile("whole" if WHOLE else "short")

# A shell starts what runs in its background with Ctrl-C ignored, and programs hand that on: tests interrupt theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Notes what there is before markers choose: test_mechanisms.py asks for it."""
    config.stash[COLLECTED] = {item.nodeid.partition("[")[0] for item in items}
