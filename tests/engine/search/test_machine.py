"""The engine does what the model does, whatever clients, operators, time, crashes and a bad disk do to it.

One model (model.py) of all that the engine knows, and a machine for each side from which it is searched: machines.py.
Lite topics have a model and a machine of their own: model_lites.py, machine_lites.py. So has a map that is nearly full:
full_map.py, machine_full.py. Results have a dict as their model: machine_results.py.
The long search over all of them is `make search` (searching.py).
"""

import logging

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.conftest import WHOLE
from tests.engine.search.all_machines import MACHINES

STEPS = 80 if WHOLE else 40


@pytest.mark.mechanism("I.05", "I.06", "I.09", "I.10", "I.12", "I.13", "S1.46", "D.70")
@pytest.mark.slow
# Some 10 s of CPU each: the limit leaves room for a machine that does other work as well.
@pytest.mark.timeout(0 if WHOLE else 600)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_the_engine_does_what_the_model_does(
    machine: type[RuleBasedStateMachine], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "popmq")
    effort = settings(max_examples=3000 if WHOLE else MACHINES[machine], stateful_step_count=STEPS)
    run_state_machine_as_test(machine, settings=effort)
