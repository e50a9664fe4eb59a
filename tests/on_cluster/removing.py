"""Removes what a test left at the brokers, so that the thousandth test finds a cluster as small as the first one."""

import asyncio
import functools
import threading
import uuid
from collections.abc import Coroutine
from typing import Any

from popmq_remoting import Cluster, ClusterSettings, Request
from popmq_remoting.requests import groups, name_server
from popmq_server.cluster.brokers import Brokers, whole
from popmq_server.cluster.refusals import Asked

#: Each removal is a handful of requests to one broker.
REMOVED_S = 30.0


class _Remover:
    """A client of the cluster, in an event loop of its own; it ends with the process."""

    def __init__(self, namesrv: str) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name="remover").start()
        self._brokers: Brokers = self.run(self._connected(namesrv))

    async def _connected(self, namesrv: str) -> Brokers:
        return Brokers(Cluster(ClusterSettings([namesrv], f"remover-{uuid.uuid4().hex}")))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(REMOVED_S)

    async def remove(self, prefix: str) -> None:
        brokers = self._brokers
        tables = whole(
            await brokers.of_each(await brokers.masters(), lambda _: groups.all_groups(), groups.group_table, Asked(""))
        )
        for group in sorted({name for table in tables.values() for name in table if name.startswith(prefix)}):
            await brokers.everywhere(functools.partial(_deletion, group), Asked("", group=group))
            await brokers.written(group, name_server.delete_kv("POPMQ", group))
        for topic in sorted(name for name in await brokers.all_topics() if prefix in name):
            await brokers.remove_topic(topic)


def _deletion(group: str, _broker: str) -> Request:
    return groups.delete_group(group)


@functools.cache
def _remover(namesrv: str) -> _Remover:
    return _Remover(namesrv)


def remove(namesrv: str, prefix: str) -> None:
    """Topics and groups whose names at the brokers have this prefix."""
    remover = _remover(namesrv)
    remover.run(remover.remove(prefix))
