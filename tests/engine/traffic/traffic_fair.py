"""Groups with fair keys: messages with a tenant, and what a Pop takes of each."""

from collections.abc import Iterable, Iterator
from typing import Any

from popmq_server.contract import commands as ask
from popmq_server.values.outgoing import Outgoing
from popmq_server.values.records import FairKeys, KeyLimits
from tests.engine.rig import Delivery, Rig, message

TENANTS = FairKeys("property", "tenant")


def limited(in_flight_max: int = 0, messages_per_s: int = 0, *exceptions: tuple[str, int, int]) -> FairKeys:
    """Turns by tenant with limits. `exceptions`: (tenant, leased messages, messages a second)."""
    return FairKeys(
        "property", "tenant", "", in_flight_max, messages_per_s, tuple(KeyLimits(*one) for one in exceptions)
    )


def of(tenant: str, count: int, first: int = 0) -> Iterator[Outgoing]:
    """Messages of a tenant, with the bodies acme-0, acme-1, …"""
    return (message(f"{tenant}-{number}", properties={"tenant": tenant}) for number in range(first, first + count))


def send(rig: Rig, *messages: Iterable[Outgoing], topic: str = "t") -> None:
    """Sends them in requests of up to 1,000, each to the next queue."""
    every = [one for some in messages for one in some]
    for start in range(0, len(every), 1000):
        entries = tuple(every[start : start + 1000])
        rig.do(ask.Send(topic, entries, "", 0, sum(len(entry.data) for entry in entries)))


def opened(rig: Rig, fair: FairKeys | None = TENANTS, queues: int = 3, **settings: Any) -> Rig:
    """Topic t and group g with fair keys, the group bound to the topic."""
    rig.pair(queues, fair_keys=fair, **settings)
    return rig


def update(rig: Rig, fair: FairKeys | None) -> Any:
    """Gives group g other fair keys."""
    return rig.run(ask.UpdateGroup("g", {"fair_keys": fair}))[0]


def tenants(rows: Iterable[Delivery]) -> list[str]:
    """The tenant of each row."""
    return [row.body.rsplit("-", 1)[0] for row in rows]


def drained(rig: Rig, messages: int = 8) -> list[str]:
    """The bodies of all that pops get, each batch acked before the next."""
    found = list[str]()
    while rows := rig.pop(messages):
        rig.ack(rows)
        found += [row.body for row in rows]
    return found
