"""The jars of RocketMQ, a cluster of two masters, and the record of a whole campaign."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from bench.peers import install
from harness.rocketmq_cluster import RocketMQCluster
from tests.cluster.conftest import jars
from tests.crash.cluster.parts import kept
from tests.crash.cluster.parts.promises import Row
from tests.crash.cluster.parts.rig import Record
from tests.crash.conftest import Scale

__all__ = ["jars"]


@pytest.fixture(scope="session")
def rocketmq(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQCluster]:
    """A name server and the masters a and b. Tests leave all of them running, and have names of their own."""
    with RocketMQCluster(tmp_path_factory.mktemp("rocketmq") / "plain", jars, ("a", "b")) as cluster:
        yield cluster


@pytest.fixture
def newest() -> Path:
    """The jars of the newest release."""
    try:
        return install.rocketmq(install.ROCKETMQ_NEWEST)
    except install.Missing as error:
        pytest.skip(str(error))


@pytest.fixture
def record(scale: Scale, show: Callable[[str], None]) -> Record:
    """Keeps a row for the end of the run; of a whole campaign, or with POPMQ_RECORD=1, also for the page."""
    began_s = time.monotonic()

    def keep(fault: str, doors: str, counts: Mapping[str, float], text: str) -> None:
        seconds, load = time.monotonic() - began_s, os.getloadavg()[0]
        show(f"{fault}, {doors}: {text}  ({seconds:.0f} s, load {load:.1f}, seed {scale.seed})")
        form = "whole" if scale.whole else "short"
        if scale.whole or "POPMQ_RECORD" in os.environ:
            kept.keep(Row(fault, doors, dict(counts), text, round(seconds), round(load, 1), form))

    return keep
