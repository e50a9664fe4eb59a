"""The jars of a real RocketMQ, for tests that are left out of `make test`."""

import os
from pathlib import Path

import pytest

from bench.peers import install


@pytest.fixture(scope="session")
def jars() -> Path:
    """Of 5.3.3, installed by Maven; POPMQ_ROCKETMQ names a folder with others."""
    if named := os.environ.get("POPMQ_ROCKETMQ"):
        return Path(named)
    try:
        return install.rocketmq()
    except install.Missing as error:
        pytest.skip(str(error))
