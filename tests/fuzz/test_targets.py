"""What fuzzing has kept runs again, and each target can fail."""

import pytest

from tests.fuzz.corpus import kept
from tests.fuzz.targets import TARGETS


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_inputs_kept_by_fuzzing_break_no_promise(name: str) -> None:
    with TARGETS[name].prepared() as target:
        for raw in target.seeds + kept(name):
            target.run(raw)
