"""Runs a command beside a real RocketMQ, whose name server is in POPMQ_ON_CLUSTER.

    python -m harness.on_cluster pytest tests/sdk

The cluster ends with the command. POPMQ_ROCKETMQ names a folder with the jars of another version.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.peers import install
from harness.rocketmq_cluster import RocketMQCluster


def main(words: list[str]) -> int:
    """The exit code of the command; 1 if there are no jars."""
    try:
        jars = Path(named) if (named := os.environ.get("POPMQ_ROCKETMQ")) else install.rocketmq()
    except install.Missing as error:
        print(f"on_cluster: {error}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the cluster ends too
    with (
        tempfile.TemporaryDirectory(prefix="popmq-rocketmq-") as folder,
        RocketMQCluster(Path(folder), jars, ("a",)) as cluster,
    ):
        environment = {**os.environ, "POPMQ_ON_CLUSTER": cluster.name_server}
        return subprocess.run(words, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
