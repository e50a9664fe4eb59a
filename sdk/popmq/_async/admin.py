"""The control plane of a client: topics, groups, schedules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from popmq._async.schedules import AsyncSchedules
from popmq._async.subscriptions import AsyncSubscriptions
from popmq._async.transport.wire import Wire
from popmq._calls import admin_calls
from popmq._calls.later import Later
from popmq.duration import Duration, seconds_of, seconds_or_none
from popmq.topic import (
    DEFAULT_EXPIRY_S,
    Group,
    LiteTopics,
    Permission,
    Quota,
    Retention,
    Start,
    Subscription,
    Topic,
    TopicType,
)
from popmq_proto.v1 import popmq_pb2 as pb

if TYPE_CHECKING:
    from popmq._calls import backup as _backup
    from popmq._calls import inspection_calls
    from popmq._calls.backup import Progress
    from popmq.stats import BrokerInfo, StoreStats
else:
    inspection_calls = Later("popmq._calls.inspection_calls")
    _backup = Later("popmq._calls.backup")


class AsyncAdmin(AsyncSchedules, AsyncSubscriptions):
    """Creating what exists with the same settings succeeds; with other settings it raises AlreadyExists."""

    _wire: Wire

    async def create_topic(
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
        return await self._wire.run(call, timeout=timeout)

    async def update_topic(
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
        return await self._wire.run(call, timeout=timeout)

    async def get_topic(self, name: str, *, timeout: Duration | None = None) -> Topic:
        """One topic. Raises TopicNotFound."""
        return await self._wire.run(admin_calls.get_topic(name), timeout=timeout)

    async def list_topics(self, dead_letter_topics: bool = False, *, timeout: Duration | None = None) -> list[Topic]:
        """All topics, by name; with the %DLQ% ones when asked for."""
        return await self._wire.run(admin_calls.list_topics(dead_letter_topics), timeout=timeout)

    async def delete_topic(self, name: str, *, timeout: Duration | None = None) -> None:
        """Deletes the topic and everything in it. Raises TopicNotFound."""
        await self._wire.run(admin_calls.delete_topic(name), timeout=timeout)

    async def purge_topic(self, name: str, *, timeout: Duration | None = None) -> int:
        """Drops all messages of a topic, also leased, retried, delayed and half ones; returns how many.

        Offsets continue, and groups stay, positioned at the end. Raises TopicNotFound, InvalidField.
        """
        return await self._wire.run(admin_calls.purge_topic(name), timeout=timeout)

    async def create_group(
        self,
        name: str,
        max_attempts: int = 17,
        backoff: Duration | Sequence[Duration] = (),
        invisible: Duration = 60.0,
        share_number: int = 0,
        start: Start = "earliest",
        exclusive_owner: bool = False,
        fifo: bool = False,
        in_flight_max: int = 10_000,
        stop_on_failure: bool = False,
        lite_exclusive: bool = False,
        consume_enable: bool = True,
        subscription_expiry: Duration = DEFAULT_EXPIRY_S,
        *,
        timeout: Duration | None = None,
    ) -> Group:
        """Creates a group. `backoff`: delays before attempt 2, 3, …, or one for all; empty: 10 s, 30 s, 1 min … 2 h.

        `invisible`: the lease of a pop that names no length. `share_number` n ≥ 1: 1 + n clients share each queue.
        `start`: where the group begins in a topic, fixed when it first names the topic. `in_flight_max`: the maximum of
        leased messages in one queue. `fifo`, `stop_on_failure`, `lite_exclusive`, `consume_enable`,
        `subscription_expiry`: see Group.
        Raises AlreadyExists, InvalidField, Unsupported.
        """
        group = Group(
            name,
            max_attempts,
            admin_calls.delays_of(backoff),
            seconds_of(invisible, "invisible"),
            share_number,
            start,
            exclusive_owner,
            fifo=fifo,
            in_flight_max=in_flight_max,
            stop_on_failure=stop_on_failure,
            lite_exclusive=lite_exclusive,
            consume_enable=consume_enable,
            subscription_expiry=seconds_of(subscription_expiry, "subscription_expiry"),
        )
        return await self._wire.run(admin_calls.create_group(group), timeout=timeout)

    async def update_group(
        self,
        name: str,
        max_attempts: int | None = None,
        backoff: Duration | Sequence[Duration] | None = None,
        invisible: Duration | None = None,
        share_number: int | None = None,
        start: Start | None = None,
        exclusive_owner: bool | None = None,
        fifo: bool | None = None,
        in_flight_max: int | None = None,
        stop_on_failure: bool | None = None,
        lite_exclusive: bool | None = None,
        consume_enable: bool | None = None,
        subscription_expiry: Duration | None = None,
        *,
        timeout: Duration | None = None,
    ) -> Group:
        """Changes what is given. Raises GroupNotFound, InvalidField."""
        changes = {
            "max_attempts": max_attempts,
            "backoff": None if backoff is None else admin_calls.delays_of(backoff),
            "invisible": seconds_or_none(invisible, "invisible"),
            "share_number": share_number,
            "start": start,
            "exclusive_owner": exclusive_owner,
            "fifo": fifo,
            "in_flight_max": in_flight_max,
            "stop_on_failure": stop_on_failure,
            "lite_exclusive": lite_exclusive,
            "consume_enable": consume_enable,
            "subscription_expiry": seconds_or_none(subscription_expiry, "subscription_expiry"),
        }
        group = admin_calls.changed_group(await self.get_group(name, timeout=timeout), changes)
        return await self._wire.run(admin_calls.update_group(group), timeout=timeout)

    async def get_group(self, name: str, *, timeout: Duration | None = None) -> Group:
        """One group. Raises GroupNotFound."""
        return await self._wire.run(admin_calls.get_group(name), timeout=timeout)

    async def list_groups(self, *, timeout: Duration | None = None) -> list[Group]:
        """All groups, by name."""
        return await self._wire.run(admin_calls.list_groups(), timeout=timeout)

    async def delete_group(self, name: str, *, timeout: Duration | None = None) -> None:
        """Deletes the group, its positions, leases, retries and dead letters. Raises GroupNotFound."""
        await self._wire.run(admin_calls.delete_group(name), timeout=timeout)

    async def subscriptions(self, group: str, *, timeout: Duration | None = None) -> list[Subscription]:
        """How the group reads each topic that it has named: filter and consume mode. Raises GroupNotFound."""
        return await self._wire.run(admin_calls.subscriptions(group), timeout=timeout)

    async def info(self, *, timeout: Duration | None = None) -> BrokerInfo:
        """The broker's release and engine, and the parts of the contract that it lacks. Any access key may ask."""
        return await self._wire.run(inspection_calls.info(), timeout=timeout)

    async def set_max_size(self, size: int, *, timeout: Duration | None = None) -> StoreStats:
        """Sets the limit of the data file in bytes, 16 MiB – 64 TiB, now and for later starts of the broker.

        It applies until the broker starts with another `--max-size` than now. Raises InvalidField (less than the store
        has in use, or no address space for it), StorageFull.
        """
        return await self._wire.run(inspection_calls.set_max_size(size), timeout=timeout)

    async def backup(self, write: Callable[[bytes], object], rate: int = 0, progress: Progress | None = None) -> int:
        """Passes a consistent copy of the broker's store to `write`, piece by piece; returns its size in bytes.

        The copy has everything that was answered before this call. A broker can start on it as popmq.mdb of a folder.
        `rate`: bytes a second, at least 1 MiB; 0: 64 MiB. `progress` gets (bytes so far, an estimate of all). The call
        is not retried: after an error the written file is not a backup. Raises Busy, StorageFull, Incomplete.
        """
        coming = _backup.Backup(write, progress)
        await self._wire.listen("Admin.Backup", pb.BackupRequest(bytes_per_s=rate), coming.take)
        return coming.whole()
