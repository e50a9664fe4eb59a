"""The process of a gateway: `popmq serve --engine rocketmq`."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from pathlib import Path

from harness.broker_process import READY_S, SERVE, BrokerError, BrokerProcess
from popmq_verify.process.broker_process import READY


class GatewayProcess(BrokerProcess):
    """As a broker process, in front of the cluster of `namesrv`. `log`: the file of its log."""

    def __init__(self, log: Path, namesrv: str, *flags: str, port: int = 0, program: Sequence[str] = SERVE) -> None:
        super().__init__(log.with_suffix(""), *flags, port=port, program=program)
        self._namesrv = namesrv
        self.log = log

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """As of a broker process; before it is ready, it may say for what it waits."""
        until_s, output = time.perf_counter() + timeout_s, self._started.stdout
        assert output is not None
        said = ""
        while not self.ready_s:
            left_s = max(0.0, until_s - time.perf_counter())
            readable, _, _ = select.select([output], [], [], left_s)
            # Not by lines: a second one that has been read with the first is not seen by select.
            part = os.read(output.fileno(), 4096).decode() if readable else ""
            if not part:
                raise BrokerError(f"the gateway did not start\n{self.log_end()}")
            said += part
            if READY in said and said.endswith("\n"):
                self.ready_s = time.perf_counter() - self._spawned_at

    def _engine(self) -> list[str]:
        return ["--engine", "rocketmq", "--namesrv", self._namesrv]
