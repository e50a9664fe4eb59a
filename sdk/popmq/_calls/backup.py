"""A backup as it comes in: pieces that are written, and the proof that nothing of the file is missing."""

import hashlib
from collections.abc import Callable

from popmq.errors import Incomplete
from popmq_proto.v1 import popmq_pb2 as pb

#: Called with (bytes written so far, about how many there will be).
Progress = Callable[[int, int], None]


class Backup:
    """Takes the responses of one Backup call."""

    def __init__(self, write: Callable[[bytes], object], progress: Progress | None) -> None:
        if not callable(write):
            raise TypeError(f"write is {write!r:.80}: give a function that takes bytes, such as open(path, 'wb').write")
        self._write = write
        self._progress = progress
        self._digest = hashlib.sha256()
        self._about = 0
        self._end: pb.BackupEnd | None = None
        self.bytes = 0

    def take(self, response: pb.BackupResponse) -> None:
        """One response, in its order."""
        self._about = self._about or response.about_bytes
        if response.HasField("end"):
            self._end = response.end
        if response.data:
            self._write(response.data)
            self._digest.update(response.data)
            self.bytes += len(response.data)
        if self._progress:
            self._progress(self.bytes, max(self.bytes, self._about))

    def whole(self) -> int:
        """The bytes of the file. Raises Incomplete, also for a file without a byte: no store is empty."""
        if (
            not self.bytes
            or self._end is None
            or (self._end.bytes, self._end.sha256) != (self.bytes, self._digest.digest())
        ):
            raise Incomplete(
                f"the backup is not whole: {self.bytes} bytes came",
                action="throw away what was written, and take it again",
            )
        return self.bytes
