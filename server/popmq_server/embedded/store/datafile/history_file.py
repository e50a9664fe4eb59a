"""The file of the last hour's numbers in the data folder: small, replaced as a whole, and of no importance.

    content ▶ popmq.history.new ▶ renamed to popmq.history

It is not synced: after a power cut it may have zeros, and then the charts begin again. Nothing that fails here ends
or delays a broker. A file under one of the two names that PopMQ has not written stays as it is.
"""

import contextlib
import logging
import os
import pathlib
import shutil
from collections.abc import Callable

from popmq_server.embedded.store.datafile.own_files import is_zeros, open_own
from popmq_server.errors import StartError

log = logging.getLogger("popmq.history")

HISTORY_FILE = "popmq.history"
#: The next one, while it is written.
HISTORY_NEW_FILE = "popmq.history.new"
#: With less free disk nothing is written: what is left is for messages, whose sends are refused then too.
DISK_FREE_MIN = 256 << 20
#: A longer file is not read.
BYTES_MAX = 64 << 20


class HistoryFile:
    """`folder`: exists, and is locked. `is_own`: whether a file that begins so is a history."""

    def __init__(self, folder: pathlib.Path, is_own: Callable[[bytes], bool]) -> None:
        self._folder = folder
        self._is = folder.stat()
        self._is_own = lambda head: is_own(head) or is_zeros(head)
        #: The fault that was logged last, so that the log has one line for a disk that stays full.
        self._said = ""

    def read(self) -> bytes:
        """Returns the content; b"" if no file can be read."""
        try:
            handle = open_own(self._folder / HISTORY_FILE, os.O_RDONLY, self._is_own)
        except FileNotFoundError:
            return b""
        except (OSError, StartError) as error:
            self._say(f"the charts begin now: {error}")
            return b""
        with open(handle, "rb") as file:
            return file.read(BYTES_MAX)

    def write(self, content: bytes) -> None:
        """Replaces the file, if that is possible."""
        try:
            if not os.path.samestat(self._folder.stat(), self._is):
                raise StartError(f"{self._folder} is another folder now")
            if shutil.disk_usage(self._folder).free < DISK_FREE_MIN + len(content):
                self._say("the numbers of the charts are not written: the disk has less than 256 MiB free")
                return
            with contextlib.suppress(FileNotFoundError):
                os.close(open_own(self._folder / HISTORY_FILE, os.O_RDONLY, self._is_own))
            self._write(content)
        except (OSError, StartError) as error:
            self._say(f"the numbers of the charts are not written: {error}")
        else:
            self._said = ""

    def _write(self, content: bytes) -> None:
        new = self._folder / HISTORY_NEW_FILE
        handle = open_own(new, os.O_RDWR | os.O_CREAT, self._is_own)
        try:
            with open(handle, "wb") as file:
                owner = self._folder.stat()
                with contextlib.suppress(OSError):  # only root gives files away
                    os.fchown(handle, owner.st_uid, owner.st_gid)
                file.truncate()
                file.write(content)
            os.rename(new, self._folder / HISTORY_FILE)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise

    def _say(self, sentence: str) -> None:
        if sentence != self._said:
            log.warning("%s", sentence)
        self._said = sentence
