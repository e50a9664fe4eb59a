"""Connections that get what a seed gives: nothing is left behind, no bug is logged, what is written can be read."""

import pytest

from tests.http2 import fuzzing

SEEDS = 400


@pytest.mark.slow
async def test_no_input_breaks_a_connection_or_leaves_state() -> None:
    for seed in range(SEEDS):
        await fuzzing.run(seed)
