"""simplebroker: messages in a file of SQLite with synchronous = FULL, its default. Each thread has a connection.

It has no acks: a read has removed its messages when it returns, so a reader that dies then loses them. It has no call
that sends a batch and makes the ids. `_fill` makes ids of its own, for messages that are only there to be read.
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from bench.peers.drivers.legs import Options

#: Messages for each leg that reads: more than it reads in its time.
FILLED = 20_000
#: Distance of ids, which are times in nanoseconds with a counter in their last bits.
APART = 1 << 12


class SimpleBroker:
    """Threads of one process."""

    def __init__(self, options: Options) -> None:
        self._options = options
        if options.leg == "receive":
            self._fill()

    def _queue(self) -> Any:
        made = importlib.import_module("simplebroker").Queue
        return made(self._options.topic, db_path=self._options.endpoint, persistent=True)

    def _fill(self) -> None:
        queue, (body,) = self._queue(), self._options.texts()[:1]
        newest = queue.generate_timestamp()
        queue.insert_messages([(body, newest - APART * number) for number in range(1, FILLED + 1)])

    def prepare(self, topics: Sequence[str]) -> None:
        """A queue is there once it has a message."""

    def sender(self, caller: int) -> Callable[[], int]:
        queue = self._queue()

        def send() -> int:
            for text in self._options.texts():
                queue.write(text)
            return self._options.batch

        return send

    def receiver(self, caller: int) -> Callable[[], int]:
        queue = self._queue()
        if self._options.batch == 1:
            return lambda: int(queue.read_one() is not None)
        return lambda: len(queue.read_many(self._options.batch))
