"""A MariaDB server of its own, for tests and campaigns: on a port of the loopback, in a folder, without a service.

It speaks MySQL's protocol.
"""

import os
import socket
import subprocess
from pathlib import Path
from time import monotonic, sleep
from typing import Self

from harness.broker_process import own_port

START_S = 60


class MariaDB:
    """One server. `with` starts it and stops it; between the two it can crash."""

    def __init__(self, root: Path, folder: Path) -> None:
        """`root`: below it are usr/sbin/mariadbd and usr/share/mysql."""
        self.port = own_port()
        self.url = f"mysql://root@127.0.0.1:{self.port}/shop"
        self._root = root
        self._folder = folder
        self._data = folder / "mariadb"
        # What was unpacked has its libraries beside it.
        self._environment = {**os.environ, "LD_LIBRARY_PATH": str(root / "usr/lib/x86_64-linux-gnu")}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if not self._data.exists():
            self._data.mkdir(mode=0o700)
            self._bootstrap()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Returns when it accepts connections; also after a crash."""
        listening = [f"--port={self.port}", "--bind-address=127.0.0.1", f"--socket={self._data / 'socket'}"]
        command = [*self._command(), *listening, "--skip-grant-tables", "--innodb-buffer-pool-size=32M"]
        with (self._folder / "mariadb.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", env=self._environment)
        end = monotonic() + START_S
        while not self._accepts():
            if self._process.poll() is not None or monotonic() > end:
                raise RuntimeError(f"MariaDB did not start: {(self._folder / 'mariadb.log').read_text()[-2000:]}")
            sleep(0.05)

    def kill(self) -> None:
        """As after a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _accepts(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def _command(self) -> list[str]:
        share = self._root / "usr/share/mysql"
        place = [f"--datadir={self._data}", f"--lc-messages-dir={share}", f"--character-sets-dir={share / 'charsets'}"]
        return [str(self._root / "usr/sbin/mariadbd"), "--no-defaults", *place, *["--user=root"] * (not os.getuid())]

    def _bootstrap(self) -> None:
        """The system tables, and a database."""
        share = self._root / "usr/share/mysql"
        tables = (share / "mysql_system_tables.sql").read_text()
        sql = ["CREATE DATABASE mysql;", "USE mysql;", tables, "CREATE DATABASE shop;", ""]
        done = subprocess.run(
            [*self._command(), "--bootstrap", "--max-allowed-packet=8M"],
            input="\n".join(sql).encode(),
            capture_output=True,
            cwd="/",
            env=self._environment,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"MariaDB's system tables: {done.stderr[-2000:].decode(errors='replace')}")
