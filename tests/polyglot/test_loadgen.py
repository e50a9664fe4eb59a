"""The load generator of make bench-compare: its own tests, and both faces of a broker, measured for a moment."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.peers import install
from harness.broker_process import BrokerProcess

pytestmark = [pytest.mark.polyglot, pytest.mark.timeout(300)]  # the first run fetches and compiles


@pytest.fixture(scope="module")
def loadgen() -> Path:
    try:
        return install.loadgen()
    except install.Missing as missing:
        pytest.skip(str(missing))


def leg(loadgen: Path, broker: BrokerProcess, target: str, name: str, *flags: str) -> dict[str, Any]:
    """What a leg of a fifth of a second printed."""
    words = [str(loadgen), "-target", target, "-endpoint", broker.endpoint, "-leg", name, "-seconds", "0.2", *flags]
    done = subprocess.run(words, input="go\n", capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.removeprefix("ready\n") or "{}")
    return told


def test_the_load_generators_own_tests_pass(loadgen: Path) -> None:
    install.run(["go", "test", "."], install.BENCH / "loadgen")


@pytest.mark.parametrize("target", ["popmq", "rocketmq"])
def test_the_load_generator_receives_and_measures_its_messages(
    loadgen: Path, broker: BrokerProcess, target: str
) -> None:
    leg(loadgen, broker, "popmq", "prepare", "-topic", "t,live")
    sent = leg(loadgen, broker, target, "send", "-topic", "t", "-batch", "8", "-callers", "2")
    received = leg(loadgen, broker, target, "receive", "-topic", "t", "-batch", "8", "-callers", "2")
    delivered = leg(loadgen, broker, target, "deliver", "-topic", "live", "-rate", "20", "-callers", "4")
    assert sent["messages"] % 8 == 0
    assert 0 < received["messages"] <= sent["messages"]
    assert 0 < sent["p50_ms"] <= sent["p99_ms"] <= sent["max_ms"]
    assert delivered["messages"] + delivered["undelivered"] == 4
