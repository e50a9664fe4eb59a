"""Session leases: what push consumers of apache.rocketmq.v2 hold, which renew nothing (`auto_renew`).

A message is leased once for the consumeTimeoutMinute of its group, so that any gateway takes its ack, also after this
one died. What a client holds is remembered here only to give it back early, after RELEASED_MS:

    the client says goodbye                                                     at once
    it makes no call for SILENT_S, neither here nor at another gateway          soon after that
    it made a call at another gateway since the delivery, or none can tell      never: its leases end by themselves

A lease that another gateway has acked must not be given back: its broker would deliver the message again.
"""

import asyncio
import contextlib
import contextvars
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable

from popmq_remoting.requests import popping
from popmq_server.clock import pause
from popmq_server.cluster import names
from popmq_server.cluster.brokers import Brokers, in_lanes, succeeded
from popmq_server.cluster.members.neighbours import Neighbours
from popmq_server.cluster.refusals import Asked
from popmq_server.cluster.shared import Shared
from popmq_server.cluster.signed.handles import SignedDelivery
from popmq_server.contract.commands import ReleaseSession, RenewSession, queries
from popmq_server.errors import Refused

#: A lease of 0 is 4 s slower at some brokers, and no faster at others.
RELEASED_MS = 1_000
#: Handles of all clients; beyond, the oldest are forgotten, and their leases end by themselves.
HELD_MAX = 200_000
#: Official clients send a heartbeat each 10 s. SWEEP_S: how soon it is noticed.
SILENT_S, SWEEP_S = 60.0, 5.0
#: How long it is known when a client made its last call here: longer than most leases.
HEARD_S = 3_600.0
#: By how much the clocks of brokers may be learnt wrong.
_CLOCK_S = 1.0


class Held:
    """Handles that clients hold, by client and group. `over`: told of each that is removed, also of one not held."""

    def __init__(self, over: Callable[[str], None] = lambda handle: None) -> None:
        self._over = over
        #: By handle: (client, group, message id).
        self._handles: OrderedDict[str, tuple[str, str, str]] = OrderedDict()
        self._of_client: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._handles)

    def add(self, client: str, group: str, rows: Iterable[tuple[str, str]]) -> None:
        """`rows`: (handle, message id)."""
        for handle, message_id in rows:
            self._handles[handle] = (client, group, message_id)
            self._of_client.setdefault(client, set()).add(handle)
        while len(self._handles) > HELD_MAX:
            self.remove(next(iter(self._handles)))

    def remove(self, handle: str) -> None:
        """Forgets a handle: its delivery was acked, released or rejected, or has another handle."""
        self._over(handle)
        found = self._handles.pop(handle, None)
        if found is not None:
            handles = self._of_client[found[0]]
            handles.discard(handle)
            if not handles:
                del self._of_client[found[0]]

    def renamed(self, handle: str, new: str) -> None:
        """Replaces the handle of a delivery, after a change of its lease."""
        found = self._handles.get(handle)
        self.remove(handle)
        if found is not None:
            self.add(found[0], found[1], [(new, found[2])])

    def clients(self) -> list[str]:
        """Who holds something."""
        return list(self._of_client)

    def leave(self, client: str) -> list[tuple[str, str]]:
        """(handle, group) of all that a client held."""
        handles = list(self._of_client.get(client, ()))
        found = [(handle, self._handles[handle][1]) for handle in handles]
        for handle in handles:
            self.remove(handle)
        return found

    def handle_of(self, client: str, group: str, message_id: str) -> str:
        """The handle of a message by its id; "" if it is not held here."""
        for handle in self._of_client.get(client, ()):
            if self._handles[handle][1:] == (group, message_id):
                return handle
        return ""


class Heard:
    """When clients made their last calls here, by the names under which they hold leases."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        #: The longest silent first.
        self._at_s: OrderedDict[str, float] = OrderedDict()

    def note(self, client: str) -> None:
        """A call of the client."""
        now_s = self._loop.time()
        self._at_s[client] = now_s
        self._at_s.move_to_end(client)
        while now_s - self._at_s[first := next(iter(self._at_s))] >= HEARD_S:
            del self._at_s[first]

    def s_ago(self, client: str) -> float:
        """Seconds since its last call; inf: it made none, or that is longer ago than HEARD_S."""
        return self._loop.time() - self._at_s.get(client, -math.inf)

    def lately(self, client: str) -> bool:
        """Whether it made one within SILENT_S."""
        return self.s_ago(client) < SILENT_S


class SessionLeases:
    """The contract's calls about session leases, for messages that this process delivered."""

    def __init__(self, shared: Shared, held: Held, heard: Heard, neighbours: Neighbours) -> None:
        self._brokers, self._handles, self._held = shared.brokers, shared.handles, held
        self._heard, self._neighbours = heard, neighbours
        self._loop = asyncio.get_running_loop()
        self._sweeping: asyncio.Task[None] | None = None

    async def renew(self, command: RenewSession) -> int:
        """Notes that the client lives. Its leases have their full length from the start."""
        self._heard.note(command.client)
        self._neighbours.show()
        if self._sweeping is None:  # of no client, so without a deadline
            self._sweeping = self._loop.create_task(
                self._sweep(), context=contextvars.Context()
            )  # no client's deadline
        return 0

    async def release(self, command: ReleaseSession) -> int:
        """Releases the messages of a client that has ended."""
        return await self._given_back(command.client, await self._neighbours.heard_s(command.client))

    async def _given_back(self, client: str, elsewhere_s: float | None) -> int:
        """Gives back what no other gateway can have acked; the rest comes again by itself if it was not acked.

        `elsewhere_s`: seconds since the client made a call at another gateway; None: unknown. If a broker refuses, or a
        lease is over, the message comes again by itself too.
        """
        held, mine = self._held.leave(client), list[tuple[SignedDelivery, str]]()
        if elsewhere_s is None:
            return 0
        for handle, group in held:
            (delivery,) = self._handles.each([handle], group, self._brokers.now_ms)
            if isinstance(delivery, SignedDelivery):
                now_ms = self._brokers.now_ms(delivery.handle.broker)
                delivered_s = (now_ms - delivery.handle.pop_ms) / 1000
                if elsewhere_s > delivered_s + _CLOCK_S:
                    mine.append((delivery, group))

        async def one(each: tuple[SignedDelivery, str]) -> None:
            with contextlib.suppress(Refused):
                await given_back(self._brokers, *each)

        await in_lanes(mine, one)
        return len(mine)

    # ── Clients that have fallen silent ──────────────────────────────────────────────────────────────────────────────

    async def _sweep(self) -> None:
        while True:
            due_s = self._loop.time() + SWEEP_S
            await pause(SWEEP_S)
            if self._loop.time() - due_s > SWEEP_S:  # this process was stopped: it did not hear anybody meanwhile
                for client in self._held.clients():
                    self._heard.note(client)
            await in_lanes([one for one in self._held.clients() if not self._heard.lately(one)], self._judge)

    async def _judge(self, client: str) -> None:
        """Ends the leases of a client that is silent here, unless it lives elsewhere, or nobody can tell."""
        elsewhere_s = await self._neighbours.heard_s(client)
        if elsewhere_s is None or self._heard.lately(client):
            return
        if elsewhere_s < SILENT_S:
            self._held.leave(client)
        else:
            await self._given_back(client, elsewhere_s)

    def close(self) -> None:
        """The process stops."""
        if self._sweeping is not None:
            self._sweeping.cancel()

    async def handle_of(self, query: queries.SessionHandle) -> str:
        """The handle of a message by its id; "" if another gateway delivered it, and the client stops repeating."""
        return self._held.handle_of(query.client, query.group, query.message_id)


async def given_back(brokers: Brokers, delivery: SignedDelivery, group: str) -> None:
    """Ends a lease soon. Raises Refused."""
    request = popping.change(delivery.topic, names.broker_group(group), delivery.handle, RELEASED_MS)
    await brokers.call(Asked(delivery.handle.broker, group=group), request, succeeded)


BY_SESSION_LEASES = (
    RenewSession.awaited_by(SessionLeases.renew)
    | ReleaseSession.awaited_by(SessionLeases.release)
    | queries.SessionHandle.awaited_by(SessionLeases.handle_of)
)
