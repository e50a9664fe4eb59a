"""A PostgreSQL server of its own, for tests and campaigns: on a port of the loopback, in a folder, without a service.

PostgreSQL refuses to run as root, so there the folder and the server belong to `nobody`.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Self

from harness.broker_process import own_port

START_S = 60


class PostgreSQL:
    """One server. `with` starts it and stops it; between the two it can crash, be copied and be promoted."""

    def __init__(self, programs: Path, folder: Path, port: int = 0) -> None:
        """`programs`: the folder of initdb, pg_ctl and postgres. `folder` must be one that others may enter."""
        self.port = port or own_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self._programs = programs
        self._data = folder / "data"
        self._user = None if os.getuid() else "nobody"

    def __enter__(self) -> Self:
        if not self._data.exists():
            self._data.mkdir(mode=0o700)
            if self._user:
                shutil.chown(self._data, self._user)
            self._run("initdb", "-A", "trust", "-U", "postgres", "--no-sync")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop("immediate")

    def start(self) -> None:
        """Returns when it accepts connections; also after a crash."""
        options = f"-c port={self.port} -c unix_socket_directories= -c max_prepared_transactions=5"
        self._run("pg_ctl", "start", "-w", "-t", str(START_S), "-o", options, "-l", str(self._data / "log"))

    def stop(self, mode: str = "fast") -> None:
        """`immediate`: without writing anything any more, as after a crash."""
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "stop", "-w", "-m", mode)

    def set(self, **settings: str) -> None:
        """Settings that the next start has."""
        with (self._data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def standby(self, folder: Path) -> "PostgreSQL":
        """A standby that streams from this server, to be started by `with`."""
        copy = PostgreSQL(self._programs, folder)
        copy._run("pg_basebackup", "-d", self.url, "-R", "-c", "fast", "-X", "stream")
        return copy

    def query(self, sql: str) -> str:
        """What psql prints, without headings; "" if the server does not answer."""
        words = [str(self._programs / "psql"), "-XAtq", "-d", self.url, "-c", sql]
        return str(subprocess.run(words, capture_output=True, text=True, check=False).stdout).strip()

    def until(self, condition: str) -> None:
        """Returns when a condition of SQL is true; meanwhile the server may be away."""
        end = monotonic() + START_S
        while self.query(f"SELECT {condition}") != "t":
            if monotonic() > end:
                raise TimeoutError(f"{self.url}: {condition}")

    def receive(self, primary: "PostgreSQL") -> None:
        """Returns when this standby has replayed what its primary has written."""
        self.until(f"pg_last_wal_replay_lsn() >= '{primary.query('SELECT pg_current_wal_flush_lsn()')}'")

    def promote(self) -> None:
        """Makes a primary of a standby."""
        self._run("pg_ctl", "promote", "-w")

    def vacuum(self) -> None:
        """Freezes all rows of all databases, also of template0, so that the server forgets old transactions."""
        self._call([self._programs / "vacuumdb", "--all", "--freeze", "--quiet", "--maintenance-db", self.url])

    def checkpoint(self) -> None:
        """Writes a checkpoint now."""
        self.query("CHECKPOINT")

    def _run(self, program: str, *words: str) -> None:
        self._call([self._programs / program, "-D", self._data, *words])

    def _call(self, words: Sequence[str | Path]) -> None:
        """Its output goes to a file: a server that was started holds a pipe open."""
        log = self._data.parent / "output"
        with log.open("ab") as output:
            done = subprocess.run(
                words, stdout=output, stderr=output, stdin=subprocess.DEVNULL, user=self._user, cwd="/"
            )
        if done.returncode:
            raise RuntimeError(f"{words[0]} ended with {done.returncode}: {log.read_text()[-2000:]}")
