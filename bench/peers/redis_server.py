"""A Redis beside which frameworks are measured: of the system, or of a package that is unpacked here."""

import os
import subprocess
import time
from pathlib import Path

from bench.peers import install
from harness.broker_process import own_port


class RedisServer:
    """Appends each command to a file before it answers, as PopMQ does, but syncs it once a second (everysec).

    It may be killed, and started again on its data. Raises install.Missing where there is none.
    """

    def __init__(self, folder: Path) -> None:
        self.port = own_port()
        self.endpoint = f"127.0.0.1:{self.port}"
        self._folder = folder
        self._program = install.redis()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns at once; `wait` until it answers."""
        words = [str(self._program), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)]
        words += ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]
        environment = {**os.environ, "LD_LIBRARY_PATH": str(install.LIBRARIES)}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log, env=environment)

    def wait(self) -> None:
        """Until it has read its data."""
        while "Ready to accept" not in self._log.read_text():
            time.sleep(0.05)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def _log(self) -> Path:
        return self._folder / "redis.log"
