# Written by sdk/twin.py from popmq/_async/calls/topics.py: change that one.
"""Calls of topics."""

from __future__ import annotations

from popmq._calls import admin_calls
from popmq._sync.client_parts import Namespace
from popmq.duration import Duration
from popmq.topic import LiteTopics, Permission, Quota, Retention, Topic, TopicType


class TopicCalls(Namespace):
    """Topics. Creating what exists with the same settings succeeds; with other settings it raises AlreadyExists."""

    def create(
        self,
        name: str,
        queues: int | None = None,
        type: TopicType = "NORMAL",
        retention: Retention | None = None,
        quota: Quota | None = None,
        unique_ids: Duration = 0.0,
        lite: LiteTopics | None = None,
        permission: Permission = "READ_WRITE",
        *,
        timeout: Duration | None = None,
    ) -> Topic:
        """Creates a topic of 1–1,024 queues; None: 8, in a PRIORITY topic 10, in a LITE topic 1.

        `type`: NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY or LITE (see Topic); it cannot be changed later. `retention`
        None: messages are kept for 72 h after every group has finished them. `unique_ids`: how long, ≤ 24 h, a
        message id is stored once; 0: ids are not compared. `lite`: limits of a LITE topic; None: the defaults.
        `permission`: see Topic. Raises AlreadyExists, InvalidField.
        """
        call = admin_calls.create_topic(name, queues, type, retention, quota, unique_ids, lite, permission)
        return self._wire.run(call, timeout=timeout)

    def get(self, name: str, *, timeout: Duration | None = None) -> Topic:
        """One topic. Raises TopicNotFound."""
        return self._wire.run(admin_calls.get_topic(name), timeout=timeout)

    def update(
        self,
        name: str,
        queues: int | None = None,
        retention: Retention | None = None,
        quota: Quota | None = None,
        unique_ids: Duration | None = None,
        lite: LiteTopics | None = None,
        permission: Permission | None = None,
        *,
        timeout: Duration | None = None,
    ) -> Topic:
        """Changes what is given; queues only upwards, and not of FIFO topics. Raises TopicNotFound, InvalidField."""
        call = admin_calls.update_topic(name, queues, retention, quota, unique_ids, lite, permission)
        return self._wire.run(call, timeout=timeout)

    def delete(self, name: str, *, timeout: Duration | None = None) -> None:
        """Deletes the topic and everything in it. Raises TopicNotFound."""
        self._wire.run(admin_calls.delete_topic(name), timeout=timeout)

    def purge(self, name: str, *, timeout: Duration | None = None) -> int:
        """Drops all messages of a topic, also leased, retried, delayed and half ones; returns how many.

        Offsets continue, and groups stay, positioned at the end. Raises TopicNotFound, InvalidField.
        """
        return self._wire.run(admin_calls.purge_topic(name), timeout=timeout)

    def list(self, dead_letter_topics: bool = False, *, timeout: Duration | None = None) -> list[Topic]:
        """All topics, by name; with the %DLQ% and %RESULT% ones when asked for."""
        return self._wire.run(admin_calls.list_topics(dead_letter_topics), timeout=timeout)
