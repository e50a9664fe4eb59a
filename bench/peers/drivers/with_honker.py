"""honker: jobs in a file of SQLite. All threads of a process share the one connection that writes.

It opens its file with synchronous = NORMAL: then a commit is on disk at the next checkpoint, and a power failure loses
the jobs since. `full`: sets FULL, for which it has no setting, between two transactions of that connection.
"""

import importlib
from collections.abc import Callable, Sequence

from bench.peers.drivers.legs import LEASE_S, Options


class Honker:
    """Threads of one process."""

    def __init__(self, options: Options, full: bool = False) -> None:
        self._options = options
        self._database = importlib.import_module("honker").open(options.endpoint)
        if full:
            with self._database.transaction() as transaction:
                for statement in ("COMMIT", "PRAGMA synchronous = FULL", "BEGIN IMMEDIATE"):
                    transaction.execute(statement)
        self._queue = self._database.queue(options.topic, visibility_timeout_s=LEASE_S)

    def prepare(self, topics: Sequence[str]) -> None:
        """A queue is there once it has a job."""

    def sender(self, caller: int) -> Callable[[], int]:
        return self._send if self._options.batch == 1 else self._send_batch

    def _send(self) -> int:
        self._queue.enqueue(self._options.texts()[0])
        return 1

    def _send_batch(self) -> int:
        texts = self._options.texts()
        with self._database.transaction() as transaction:
            for text in texts:
                self._queue.enqueue(text, tx=transaction)
        return len(texts)

    def receiver(self, caller: int) -> Callable[[], int]:
        worker = f"worker-{caller}"

        def receive() -> int:
            jobs = self._queue.claim_batch(worker, self._options.batch)
            if jobs:
                self._queue.ack_batch([job.id for job in jobs], worker)
            return len(jobs)

        return receive
