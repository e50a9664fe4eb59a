"""Finds two sources of one Spark application that read a topic as one group.

A group gives each message to one of its owners. Spark makes a source, and so an owner, for each use of a streaming
DataFrame: a query that joins a stream with itself would join two halves, and two queries of one DataFrame would each
miss what the other one gets. So the second source of an application is refused. Other applications may share a group.

Spark does not tell a source which query it is for, nor does any two of them share a process: each has one of its own,
which the JVM of the application started. So each source holds a locked file on the driver's machine, as long as its
process lives:

    popmq-spark-UID/APPLICATION-HASH-OWNER      the JVM's process id, of broker and group; its lines are the topics
"""

import contextlib
import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from popmq_spark.options import OptionError, Options

try:
    import fcntl
except ImportError:  # Windows: nothing is claimed, and nothing is refused
    fcntl = None  # type: ignore[assignment]  # a module that is not there

_log = logging.getLogger("popmq_spark")

#: For so long a source waits for the end of another one: Spark ends the process of a stopped query a moment later.
PATIENCE_S, LOOK_S = 5.0, 0.1


class Claim:
    """What one source reads, as the other sources of its application see it. `application`: the JVM's process id."""

    def __init__(self, application: int, options: Options, owner: str) -> None:
        key = hashlib.sha256(f"{options.endpoint}\n{options.group}".encode()).hexdigest()[:16]
        self._folder = Path(tempfile.gettempdir(), f"popmq-spark-{os.getuid() if fcntl else 0}")
        self._source = f"{application}-{key}-"
        self._path = self._folder / (self._source + hashlib.sha256(owner.encode()).hexdigest()[:16])
        self.owner = owner
        self._group = options.group
        self._file: int | None = None
        self._topics: set[str] = set()

    def add(self, topics: Iterable[str], sleep: Callable[[float], None] = time.sleep) -> None:
        """Claims more topics. Raises OptionError if another living source of the application has claimed one."""
        new = set(topics) - self._topics
        if not new or fcntl is None:
            return
        self._topics |= new
        try:
            self._write()
            for _ in range(round(PATIENCE_S / LOOK_S)):
                if not (both := self._claimed_by_others() & new):
                    return
                sleep(LOOK_S)
        except OSError as error:  # no folder for temporary files, or one that is full: not a reason to stop
            _log.warning("it is not known whether another source of this application reads as the group: %s", error)
            return
        self.drop()
        raise OptionError(
            f"popmq: another source of this Spark application reads the topic {min(both)!r} as the group "
            f"{self._group}, so each would get a part of its messages only. A stream that a query uses twice, as a "
            "join with itself does, and two queries of one stream need mode=offsets, in which each reads everything, "
            "or a readStream with a group of its own for each use"
        )

    def drop(self) -> None:
        """Lets the topics go. The end of the process does so, too."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                if os.path.samestat(self._path.stat(), os.fstat(self._file)):  # not that of a restart of the query
                    self._path.unlink()
            os.close(self._file)
        self._file = None
        self._topics = set()

    def _write(self) -> None:
        """Writes the file. It is locked before it has its name: what others see unlocked is of a process that ended."""
        if self._file is None:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._file, aside = tempfile.mkstemp(prefix=".", dir=self._folder)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._file, "\n".join(self._topics).encode())
            os.replace(aside, self._path)
        else:
            os.pwrite(self._file, "\n".join(self._topics).encode(), 0)  # only grows

    def _claimed_by_others(self) -> set[str]:
        """The topics of the other sources of this application; removes the files of all that ended."""
        found: set[str] = set()
        for path in self._folder.iterdir():
            if path == self._path or path.name.startswith("."):
                continue
            with contextlib.suppress(FileNotFoundError):
                if is_held(path):
                    found |= set(path.read_text().split("\n") if path.name.startswith(self._source) else ())
                else:
                    path.unlink()
        return found


def is_held(path: Path) -> bool:
    """Whether a living process holds this file."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
