"""The client and the outbox of this process, for each backend: Django makes a backend for each thread and task.

A process that forks after it has used a backend, as servers do, makes both anew: a client does not work after a fork.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from django.core.signals import setting_changed
from django.db import connections, transaction
from django.dispatch import receiver

import popmq
from popmq import errors
from popmq_integrations.django.options import Options, decides

#: Django's priorities are -100 to 100, those of a topic 0 to 200, each a queue of its own.
PRIORITY_OFFSET = 100
PRIORITIES = 201
#: Attempts of a group, which those of dead workers are among.
ATTEMPTS = 17
#: Messages of transactions that are remembered, since one may ask for them right after the commit.
DECIDING_MAX = 1000
#: Seconds in which a transaction that has ended is noticed.
DECIDED_S = 1.0


class Process:
    """What the threads of one process share."""

    def __init__(self, connection: dict[str, Any], options: Options) -> None:
        self.client = popmq.Client(**connection)
        self._options = options
        self._lock = threading.Lock()
        self._outbox: popmq.Outbox | None = None
        self._deciding: deque[str] = deque(maxlen=DECIDING_MAX)

    @property
    def outbox(self) -> popmq.Outbox:
        """Of the database whose transactions decide."""
        with self._lock:
            if self._outbox is None:
                self._outbox = popmq.Outbox(self.client, connections[self._options.database])
            return self._outbox

    def prepare(self, alias: str) -> None:
        """Makes the table of the outbox, if this database decides and needs one: before a transaction has to."""
        database = connections[alias]
        if alias == self._options.database and decides(database):
            with self.outbox(database):
                pass

    def send(self, topic: str, message: popmq.Message) -> None:
        """Sends in the transaction of this thread, if there is one; creates the topic if it is missing."""
        alias = self._options.database
        send = partial(self.client.send, topic, message)
        if not self._in_transaction():
            self._with_topic(topic, send)
        elif decides(connections[alias]):
            self._with_topic(topic, partial(self._send_with_outbox, topic, message))
            self._deciding.append(message.message_id)
        else:
            transaction.on_commit(partial(self._with_topic, topic, send), using=alias)

    def _with_topic(self, topic: str, send: Callable[[], object]) -> None:
        try:
            send()
        except errors.TopicNotFound:
            self.declare(topic)
            send()

    def _send_with_outbox(self, topic: str, message: popmq.Message) -> None:
        alias = self._options.database
        # A savepoint: a send that raises is rolled back, also if the caller catches the error and commits.
        with transaction.atomic(using=alias), self.outbox(connections[alias]) as box:
            box.send(topic, message)

    def declare(self, *topics: str) -> None:
        """Creates the topics and the group that are not there. Raises PermissionDenied for a key that may not."""
        for topic in topics:
            try:
                self.client.topics.create(topic, queues=PRIORITIES, type="PRIORITY")
            except errors.AlreadyExists:  # as its operator wants it
                continue
        name, keep, attempts = self._options.group, self._options.results_keep, self._options.max_attempts
        try:
            self.client.groups.create(name, results_keep=keep, max_attempts=max(attempts, ATTEMPTS))
        except errors.AlreadyExists:
            group = self.client.groups.get(name)
            if not group.results_keep:
                self.client.groups.update(name, results_keep=keep)
            if group.max_attempts < attempts:
                self.client.groups.update(name, max_attempts=attempts)

    def decided(self, message_id: str) -> bool:
        """Whether a message that was just not there may be there now: this process sent it in a transaction before.

        Waits until those that have ended are decided. Their messages are visible some milliseconds later.
        """
        if self._outbox is None or message_id not in self._deciding or self._in_transaction():
            return False
        return self._outbox.flush(DECIDED_S)

    def _in_transaction(self) -> bool:
        """Whether this thread is in one. Opens no connection to find out."""
        database = connections[self._options.database]
        return database.connection is not None and (database.in_atomic_block or not database.autocommit)

    def close(self) -> None:
        """Ends what is open."""
        if self._outbox is not None:
            self._outbox.close()
        self.client.close()


#: By process id, and by settings: a forked child has those of its parent, which are not for it.
_processes: dict[tuple[int, str], Process] = {}


def process_of(connection: dict[str, Any], options: Options) -> Process:
    """The one of these settings. Raises InvalidField."""
    name = os.getpid(), repr((sorted(connection.items()), options))
    found = _processes.get(name)
    if found is None:
        # No lock: a child that was forked while another thread held it would wait forever.
        made = Process(connection, options)
        found = _processes.setdefault(name, made)
        if found is not made:
            made.close()
    return found


def close_all() -> None:
    """Closes all clients of this process; the next call of a backend makes new ones."""
    for name in [name for name in list(_processes) if name[0] == os.getpid()]:
        _processes.pop(name).close()


@receiver(setting_changed)  # type: ignore[untyped-decorator]  # Django has no types
def _settings_changed(*, setting: str, **_: Any) -> None:
    if setting in ("TASKS", "DATABASES"):
        close_all()
