"""What the consumers of a client share with it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from popmq._async.consuming.heartbeats import Heartbeats
from popmq._async.consuming.leases import HeldLeases
from popmq._async.consuming.scheduler import Scheduler
from popmq._async.consuming.settler import Settler
from popmq._async.transport.wire import Wire
from popmq._calls.message_rows import Numbering
from popmq._consuming.clock import Clock
from popmq.message import Body, Delivery, Message


@dataclass(frozen=True, slots=True)
class Parts:
    """One object of each kind for all consumers of a client."""

    wire: Wire
    clock: Clock
    scheduler: Scheduler
    leases: HeldLeases
    settler: Settler
    client_id: str
    numbering: Numbering
    heartbeats: Heartbeats
    reply: Callable[[Delivery, Message | Body], Any]  # of the client


def parts_of(
    wire: Wire, clock: Clock, client_id: str, numbering: Numbering, reply: Callable[[Delivery, Message | Body], Any]
) -> Parts:
    """The parts of a client, which is given by what it is made from."""
    scheduler = Scheduler(clock)
    leases = HeldLeases(wire, clock, scheduler)
    settler = Settler(wire, clock, leases, numbering)
    heartbeats = Heartbeats(wire, clock, scheduler, client_id)
    return Parts(wire, clock, scheduler, leases, settler, client_id, numbering, heartbeats, reply)
