"""What all tests share: how Hypothesis searches. By default it repeats the same examples; a campaign rolls dice."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

WHOLE = os.environ.get("POPMQ_CAMPAIGN") == "whole"

settings.register_profile("short", deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
settings.register_profile("whole", deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
settings.load_profile("whole" if WHOLE else "short")
