# Written by sdk/twin.py from popmq/_async/admin.py: change that one.
"""The control plane of a client: topics, groups, numbers."""

from collections.abc import Sequence

from popmq import _admin_calls
from popmq._sync.wire import Wire
from popmq.stats import Leases, Owner, Page, Stats
from popmq.topic import Group, Retention, Start, Topic


class Admin:
    """Creating what exists with the same settings succeeds; with other settings it raises AlreadyExists."""

    _wire: Wire

    def create_topic(
        self, name: str, queues: int = 8, type: str = "NORMAL", retention: Retention | None = None
    ) -> Topic:
        """Makes a topic of 1–1,024 queues. `retention` None: 72 h after every group is done.

        Raises AlreadyExists, InvalidField, Unsupported (a type of a later release).
        """
        topic = Topic(name, type, queues, retention or Retention())
        return self._wire.run(_admin_calls.create_topic(topic))

    def update_topic(self, name: str, queues: int | None = None, retention: Retention | None = None) -> Topic:
        """Changes what is given; queues only upwards. Raises TopicNotFound, InvalidField."""
        topic = _admin_calls.changed_topic(self.get_topic(name), queues, retention)
        return self._wire.run(_admin_calls.update_topic(topic))

    def get_topic(self, name: str) -> Topic:
        """One topic. Raises TopicNotFound."""
        return self._wire.run(_admin_calls.get_topic(name))

    def list_topics(self, dead_letter_topics: bool = False) -> list[Topic]:
        """All topics, by name; with the %DLQ% ones when asked for."""
        return self._wire.run(_admin_calls.list_topics(dead_letter_topics))

    def delete_topic(self, name: str) -> None:
        """Removes the topic and everything in it. Raises TopicNotFound."""
        self._wire.run(_admin_calls.delete_topic(name))

    def create_group(
        self,
        name: str,
        max_attempts: int = 17,
        backoff: Sequence[float] = (),
        invisible: float = 60.0,
        share_number: int = 0,
        start: Start = "earliest",
        exclusive_owner: bool = False,
    ) -> Group:
        """Makes a group. `backoff`: seconds before attempt 2, 3, …; empty: 10 s, 30 s, 1 min … 2 h.

        `invisible`: the lease of a pop that asks for none. `share_number` n ≥ 1: each queue is shared by 1 + n clients.
        `start`: where it begins in each topic, fixed when it first names the topic.
        Raises AlreadyExists, InvalidField, Unsupported.
        """
        group = Group(name, max_attempts, backoff, invisible, share_number, start, exclusive_owner)
        return self._wire.run(_admin_calls.create_group(group))

    def update_group(
        self,
        name: str,
        max_attempts: int | None = None,
        backoff: Sequence[float] | None = None,
        invisible: float | None = None,
        share_number: int | None = None,
        start: Start | None = None,
        exclusive_owner: bool | None = None,
    ) -> Group:
        """Changes what is given. Raises GroupNotFound, InvalidField."""
        changes = {
            "max_attempts": max_attempts,
            "backoff": backoff,
            "invisible": invisible,
            "share_number": share_number,
            "start": start,
            "exclusive_owner": exclusive_owner,
        }
        group = _admin_calls.changed_group(self.get_group(name), changes)
        return self._wire.run(_admin_calls.update_group(group))

    def get_group(self, name: str) -> Group:
        """One group. Raises GroupNotFound."""
        return self._wire.run(_admin_calls.get_group(name))

    def list_groups(self) -> list[Group]:
        """All groups, by name."""
        return self._wire.run(_admin_calls.list_groups())

    def delete_group(self, name: str) -> None:
        """Removes the group, its positions, leases, retries and dead letters. Raises GroupNotFound."""
        self._wire.run(_admin_calls.delete_group(name))

    def stats(self, topic: str = "", group: str = "") -> Stats:
        """Numbers by topic and group, empty for all. Raises TopicNotFound, GroupNotFound."""
        return self._wire.run(_admin_calls.stats(topic, group))

    def browse(self, topic: str, queue: int = 0, offset: int = 0, max_messages: int = 32) -> Page:
        """Reads messages by position, with no lease and no effect.

        `topic` may be %DLQ%group, or %RETRY%group+topic with the number of an entry as `offset`. An offset below the
        first begins at the first. Raises TopicNotFound, InvalidField.
        """
        return self._wire.run(_admin_calls.browse(topic, queue, offset, max_messages))

    def leases(self, group: str = "", topic: str = "", max_leases: int = 100) -> Leases:
        """What is leased or in backoff, by whom, until when, soonest first. Raises TopicNotFound, GroupNotFound."""
        return self._wire.run(_admin_calls.leases(group, topic, max_leases))

    def owners(self, group: str = "") -> list[Owner]:
        """Owners of a group, or of all. Raises GroupNotFound."""
        return self._wire.run(_admin_calls.owners(group))
