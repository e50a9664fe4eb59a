"""The secret of the handles is rotated while clients hold deliveries: no handle is refused at any time."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from harness.rocketmq_cluster import RocketMQCluster
from tests.crash.cluster.parts.callers import INVISIBLE_S
from tests.crash.cluster.parts.rig import DRAIN_S, Doors, Record, doors, load, report
from tests.crash.conftest import Scale

pytestmark = pytest.mark.chaos

#: Between the reloads of two gateways: others go on with what they had.
BETWEEN_S = 2.0


def written(open_: Doors, *secrets: str) -> None:
    """Replaces the file, and reloads one gateway after the other."""
    new = open_.secret.with_name("new")
    new.touch(mode=0o600)
    new.write_text("".join(f"{secret}\n" for secret in secrets))
    new.replace(open_.secret)
    for gateway in open_.gateways:
        time.sleep(BETWEEN_S)
        os.kill(gateway.pid, signal.SIGHUP)


def test_a_rotated_secret_refuses_no_handle(
    rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, record: Record
) -> None:
    rounds = scale.pick(short=1, whole=5)
    with doors(tmp_path, rocketmq.name_server) as open_, load(open_) as loaded:
        now = open_.secret.read_text().strip()
        for number in range(rounds):
            following = f"the secret of round {number}, which both gateways share"
            written(open_, now, following)
            written(open_, following, now)
            time.sleep(INVISIBLE_S)  # the longest lease
            written(open_, following)
            now = following
        loaded.finish(DRAIN_S)
    verdict = report(loaded, record, "the secret of the handles is rotated", more={"rotations": rounds})
    assert loaded.histories.failed == [], "every call was OK, at the first try"
    assert (verdict.after_ack, verdict.overlaps, verdict.backwards) == ([], [], [])
