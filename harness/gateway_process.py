"""The process of a gateway: `popmq serve --engine rocketmq`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.broker_process import SERVE, BrokerProcess


class GatewayProcess(BrokerProcess):
    """As a broker process, in front of the cluster of `namesrv`. `log`: the file of its log."""

    def __init__(self, log: Path, namesrv: str, *flags: str, port: int = 0, program: Sequence[str] = SERVE) -> None:
        super().__init__(log.with_suffix(""), *flags, port=port, program=program)
        self._namesrv = namesrv
        self.log = log

    def _engine(self) -> list[str]:
        return ["--engine", "rocketmq", "--namesrv", self._namesrv]
