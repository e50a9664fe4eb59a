"""Stores results while the next tasks run: a thread takes all that waits, and stores it in one commit."""

import atexit
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from threading import Condition, Thread
from time import sleep

from celery import signals

import popmq
from popmq.errors import TryLater

log = logging.getLogger("popmq.celery")

#: Results that wait at most, and bytes of one: together they fit into one call. Who gives more waits.
WAITING_MAX, BYTES_MAX = 128, 64 * 1024
#: Seconds until results are tried again; the client itself has tried for longer. Seconds for the rest at the end.
AGAIN_S, END_S = 0.5, 10.0

Store = Callable[[Mapping[str, popmq.Result]], None]


class Behind:
    """The results of one process on their way to the broker. Any thread may call it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._process = os.getpid()
        self._waiting: dict[str, popmq.Result] = {}
        self._going: dict[str, popmq.Result] = {}
        self._changed = Condition()
        self._thread: Thread | None = None

    def put(self, place: str, result: popmq.Result) -> None:
        """Stores it soon. Waits while too many wait, as when the broker is away."""
        with self._changed:
            if self._thread is None:
                self._begin()
            self._changed.wait_for(lambda: len(self._waiting) < WAITING_MAX)
            self._waiting[place] = result
            self._changed.notify_all()

    def _begin(self) -> None:
        self._thread = Thread(target=self._run, name="popmq-results", daemon=True)
        self._thread.start()
        atexit.register(self._end)
        signals.worker_process_shutdown.connect(self._end, weak=False)  # children of the pool end without atexit

    def flush(self, places: Iterable[str] | None = None, timeout: float | None = None) -> None:
        """Waits until these are stored, or all."""
        wanted = None if places is None else set(places)
        with self._changed:
            self._changed.wait_for(lambda: not self._has(wanted), timeout)

    def _has(self, wanted: set[str] | None) -> bool:
        under_way = self._waiting.keys() | self._going.keys()
        return bool(under_way if wanted is None else under_way & wanted)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                self._going, self._waiting = self._waiting, {}
                self._changed.notify_all()
            self._store_all()
            with self._changed:
                self._going = {}
                self._changed.notify_all()

    def _store_all(self) -> None:
        while True:
            try:
                self._store(self._going)
                return
            except TryLater as error:
                log.warning("%d results cannot be stored now, and are tried again: %s", len(self._going), error)
                sleep(AGAIN_S)
            except Exception as error:  # such as a right that was taken away: the thread goes on
                log.error("%d results are lost: %s", len(self._going), error)
                return

    def _end(self, **_: object) -> None:
        if self._process == os.getpid():
            self.flush(timeout=END_S)


@cache
def behind(process: int, client: popmq.Client, group: str) -> Behind:
    """That of a process."""
    return Behind(lambda results: client.store_results(results, group))
