"""A note in the data folder that a signal ended the broker; the next start then reads every page first.

LMDB reads the file through a map. With a damaged page it may look for a value outside of the file: the system ends the
process (SIGBUS, SIGSEGV). An invariant of LMDB that does not hold ends it too (SIGABRT), and so does a sector that the
disk cannot read (SIGBUS). None of these can be caught, so the broker ends once:

    running ─▶ signal ─▶ the handler writes the note ─▶ start: every page is read ─┬▶ damage: StartError, the note stays
                                                                                   └▶ sound: a warning, the note is gone

After kill -9 or a power cut there is no note, and such a start costs nothing more.
"""

import faulthandler
import os
import pathlib

#: Name of the file in the data folder; it is empty while the broker runs.
NOTE_FILE = "popmq.fault"
#: The first words that the handler writes.
_BEGIN = "Fatal Python error: "
#: At most this many bytes of a note are read.
_READ_BYTES = 4096


class FaultNote:
    """Holds the note open for the signal handler of the process. Only for a process that is nothing but a broker."""

    def __init__(self, folder: pathlib.Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(folder / NOTE_FILE, flags, 0o600)
        #: The signal that ended the process before, such as "Bus error"; "" if none did.
        self.ended_by = _first_line(os.pread(self._file, _READ_BYTES, 0).decode(errors="replace"))
        faulthandler.enable(self._file)

    def clear(self) -> None:
        """Empties the note: the data file has been read and is sound."""
        os.ftruncate(self._file, 0)
        self.ended_by = ""

    def close(self) -> None:
        """Disables the handler. The empty file stays: removing it is one more write, which a disk may refuse."""
        faulthandler.disable()
        os.close(self._file)


def is_note(head: bytes) -> bool:
    """Whether a note may begin with these bytes; a power cut may leave zeros."""
    return head.startswith(_BEGIN.encode()) or not head.strip(b"\0")


def _first_line(text: str) -> str:
    """The name that the handler gives to the signal, on the first line."""
    return text.partition("\n")[0].removeprefix(_BEGIN)
