"""The brokers of the cluster behind a gateway: their roles and versions, and how the gateway reaches them."""

from typing import Any

import popmq
from popmq_console.asking import Ask, tried
from popmq_console.sorting import Columns, ordered
from popmq_console.views import paged

#: A clock that is further away makes the times of delayed messages wrong by as much, as `popmq cluster check` says.
CLOCK_MS = 2_000

BROKERS: Columns[popmq.ClusterBroker] = {
    "Broker": lambda one: (one.name, one.id),
    "Role": lambda one: one.role,
    "Address": lambda one: one.address,
    "State": lambda one: bool(one.error),
    "Version": lambda one: one.version,
    "Replicas#": lambda one: one.replicas,
    "Clock#": lambda one: one.ahead_ms,
    "Disk#": lambda one: one.disk_free_bytes,
    "In flight#": lambda one: one.in_flight,
}


async def brokers(ask: Ask) -> dict[str, Any]:
    """The list, by name; needs the right admin. Raises NotFound where no cluster is behind the broker."""
    if ask.login.info is not None and not ask.login.is_cluster:
        raise popmq.errors.NotFound("this broker keeps its messages itself: no cluster is behind it", code="NOT_FOUND")
    found, refusal = await tried(ask.client.broker.cluster(), popmq.ClusterBrokers((), None))
    order = ordered(found.brokers, BROKERS, ask.value("sort"))
    return {
        "rows": paged(order.items, ask.value("page")),
        "order": order,
        "routes_age": found.routes_age,
        "silent": sum(bool(one.error) for one in found.brokers),
        "clock_ms": CLOCK_MS,
        "refusal": refusal,
    }
