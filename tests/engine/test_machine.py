"""The engine does what the model does, whatever clients, operators, time, crashes and a bad disk do to it.

Covers I.01–I.09, I.15, I.16, I.20–I.23, I.26 and the tokens of model.md §4. `POPMQ_CAMPAIGN=whole` searches for minutes
on end, with a new seed each time.
"""

from __future__ import annotations

import logging

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conftest import WHOLE
from tests.engine.machine import ForgetfulMachine, Machine

EFFORT = settings(max_examples=3000 if WHOLE else 80, stateful_step_count=80 if WHOLE else 40)


@pytest.mark.slow
@pytest.mark.timeout(0 if WHOLE else 120)
@pytest.mark.parametrize("machine", [Machine, ForgetfulMachine])
def test_the_engine_does_what_the_model_does(machine: type[Machine], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "popmq")
    run_state_machine_as_test(machine, settings=EFFORT)
