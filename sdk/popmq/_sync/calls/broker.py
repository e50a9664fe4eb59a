# Written by sdk/twin.py from popmq/_async/calls/broker.py: change that one.
"""Calls of the whole broker: numbers, store, leases, sessions, access keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from popmq._runtime.later import Later
from popmq._sync.client_parts import Namespace
from popmq.duration import Duration
from popmq.topic import Session
from popmq_proto.v1 import popmq_pb2 as pb

if TYPE_CHECKING:
    from popmq._calls import backup as _backup
    from popmq._calls import inspection_calls, pop_calls
    from popmq._calls.backup import Progress
    from popmq.stats import AccessKeys, ClientAnswer, ClientSession, ClusterBrokers, History, Leases, Stats, StoreStats
else:
    inspection_calls = Later("popmq._calls.inspection_calls")
    pop_calls = Later("popmq._calls.pop_calls")
    _backup = Later("popmq._calls.backup")


class BrokerCalls(Namespace):
    """Numbers and the store of the broker."""

    def stats(self, topic: str = "", group: str = "", *, timeout: Duration | None = None) -> Stats:
        """Numbers by topic and group, empty for all. Raises TopicNotFound, GroupNotFound.

        `groups` has each group in each topic that it has read. With a topic and a group it has one row, of zeros until
        the group reads the topic; only `dead` is of all its topics.
        """
        return self._wire.run(inspection_calls.stats(topic, group), timeout=timeout)

    def history(self, topic: str = "", group: str = "", *, timeout: Duration | None = None) -> History:
        """Numbers of the last hour: of the whole broker, a topic, a group, or a group in a topic.

        The broker has a point every 30 s, also of the time before its last restart, and none while it was down. With an
        access key without admin the sums are of what the key may see. Raises TopicNotFound, GroupNotFound; Unsupported
        by a broker of an earlier release.
        """
        return self._wire.run(inspection_calls.history(topic, group), timeout=timeout)

    def cluster(self, *, timeout: Duration | None = None) -> ClusterBrokers:
        """The brokers of the cluster behind a gateway, by name; none if the broker keeps the messages itself.

        Needs the right admin. Raises Unavailable while the gateway has reached no name server.
        """
        return self._wire.run(inspection_calls.cluster(), timeout=timeout)

    def set_max_size(self, size: int, *, timeout: Duration | None = None) -> StoreStats:
        """Sets the limit of the data file in bytes, 16 MiB – 64 TiB, now and for later starts of the broker.

        It applies until the broker starts with another `--max-size` than now. Raises InvalidField (less than the store
        has in use, or no address space for it), StorageFull.
        """
        return self._wire.run(inspection_calls.set_max_size(size), timeout=timeout)

    def backup(self, write: Callable[[bytes], object], rate: int = 0, progress: Progress | None = None) -> int:
        """Passes a consistent copy of the broker's store to `write`, piece by piece; returns its size in bytes.

        The copy has everything that was answered before this call. A broker can start on it as popmq.mdb of a folder.
        `rate`: bytes a second, at least 1 MiB; 0: 64 MiB. `progress` gets (bytes so far, an estimate of all). The call
        is not retried: after an error the written file is not a backup. Raises Busy, StorageFull, Incomplete.
        """
        coming = _backup.Backup(write, progress)
        self._wire.listen("Admin.Backup", pb.BackupRequest(bytes_per_s=rate), coming.take)
        return coming.whole()


class LeaseCalls(Namespace):
    """Leases and backoffs."""

    def end(self, group: str, lease_id: str | int, *, timeout: Duration | None = None) -> int:
        """Ends a lease now, as if its deadline had come; returns how many of its messages were not done.

        They are visible again, or dead letters after their last attempt. `lease_id`, or `checkpoint_id`: as
        `list` returns it. Raises HandleLapsed if it has ended before, GroupNotFound; InvalidField for the lease of an
        owner (use `owners.release`).
        """
        return self._wire.run(inspection_calls.end_lease(group, lease_id), timeout=timeout)

    def list(
        self, group: str = "", topic: str = "", max_leases: int = 100, *, timeout: Duration | None = None
    ) -> Leases:
        """Lists leases and backoffs with client and deadline, soonest first. Raises TopicNotFound, GroupNotFound."""
        return self._wire.run(inspection_calls.leases(group, topic, max_leases), timeout=timeout)


class SessionCalls(Namespace):
    """Clients of the broker, and what official RocketMQ 5 clients answer."""

    def heartbeat(
        self, group: str, topics: Sequence[str], *, goodbye: bool = False, timeout: Duration | None = None
    ) -> Session:
        """Renews this client's session in the group, or ends it with `goodbye`; consumers call this by themselves."""
        return self._wire.run(pop_calls.heartbeat(group, self._client_id, topics, goodbye), timeout=timeout)

    def stack(self, client_id: str, *, timeout: Duration | None = None) -> ClientAnswer:
        """The stacks of the threads of an official RocketMQ 5 client, as the client reports them.

        Raises ClientNotFound; Unavailable without an answer in 5 s.
        """
        return self._wire.run(inspection_calls.client_stack(client_id), timeout=timeout)

    def verify_message(
        self, client_id: str, topic: str, queue: int, offset: int, *, timeout: Duration | None = None
    ) -> ClientAnswer:
        """Lets an official RocketMQ 5 push consumer handle one stored message once: nothing is leased or acked.

        Raises ClientNotFound, TopicNotFound, MessageNotFound, InvalidField; Unavailable without an answer in 5 s.
        """
        return self._wire.run(inspection_calls.verify_message(client_id, topic, queue, offset), timeout=timeout)

    def list(self, group: str = "", *, recent: bool = False, timeout: Duration | None = None) -> list[ClientSession]:
        """Clients with a session in a group, or all, with those that answer for transactions. Raises GroupNotFound.

        `recent`: also clients without a session that popped, pulled or sent within the last five minutes, and for each
        client how often it did.
        """
        return self._wire.run(inspection_calls.sessions(group, recent), timeout=timeout)


class AccessKeyCalls(Namespace):
    """Access keys; the broker reads them from its file of keys."""

    def list(self, *, timeout: Duration | None = None) -> AccessKeys:
        """The broker's access keys without their secrets: all for the right admin, else this client's own."""
        return self._wire.run(inspection_calls.access_keys(), timeout=timeout)
