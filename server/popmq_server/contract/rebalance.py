"""Queue assignment: the strategies, as pure functions.

    consume mode POP     assign       a share number s: each queue is read by 1 + s clients; 0: by all
    consume mode PULL    allocate     each queue belongs to one client, by the requested strategy

    8 queues, 3 clients      AVG        0 1 2 │ 3 4 5 │ 6 7          equal stretches, the first get the remainder
                             CIRCLE     0 3 6 │ 1 4 7 │ 2 5          assigned one by one
                             CONSISTENT_HASH                         few queues move when a client comes or goes
                             MACHINE_ROOM                            equal shares of rooms, then of their clients
                             CONFIG                                  a list of the client's own: never requested

The clients are those with a session. The result depends only on the input: both lists are sorted. "Not
known" differs from "no queues": a client that gets it keeps its queues.
"""

import bisect
import hashlib
from collections.abc import Callable, Sequence

from popmq_server.contract.commands.sessions import Assignment

#: Places of each client on the ring of CONSISTENT_HASH.
VIRTUAL_NODES = 10

#: (queues in order, clients in order and without duplicates, one of the clients) → that client's queues.
Strategy = Callable[[Sequence[int], Sequence[str], str], tuple[int, ...]]


NOT_KNOWN = Assignment(False, False, ())


# ── Consume mode POP ─────────────────────────────────────────────────────────────────────────────────────────────────


def assign(queues: int, clients: Sequence[str], client: str, share_number: int) -> Assignment:
    """The queues of one client that pops; NOT_KNOWN for a client without a session."""
    ring = sorted(set(clients))
    if client not in ring:
        return NOT_KNOWN
    if share_number <= 0 or share_number >= len(ring) - 1:
        return Assignment(True, True, ())
    index = ring.index(client)
    if len(ring) > queues:
        return Assignment(True, False, (index % queues,))
    mine = {
        queue for step in range(share_number + 1) for queue in average(queues, len(ring), (index + step) % len(ring))
    }
    return Assignment(True, False, tuple(sorted(mine)))


def average(queues: int, clients: int, index: int) -> range:
    """The share of the client at `index` when queues are assigned in equal stretches; may be empty."""
    size, more = divmod(queues, clients)
    start = index * size + min(index, more)
    return range(start, start + size + (index < more))


# ── Consume mode PULL ────────────────────────────────────────────────────────────────────────────────────────────────


def allocate(queues: int, clients: Sequence[str], client: str, strategy: str) -> Assignment:
    """The queues of one client that pulls; not known without a session, or with an unknown strategy."""
    ring = sorted(set(clients))
    chosen = STRATEGIES.get(strategy or "AVG")
    if client not in ring or chosen is None:
        return NOT_KNOWN._replace(mode="PULL")
    return Assignment(True, False, tuple(sorted(set(chosen(range(queues), ring, client)))), "PULL")


def _checked(queues: Sequence[int], clients: Sequence[str], client: str) -> bool:
    """Whether the client is in the list. Raises ValueError for empty input."""
    if not client or not queues or not clients:
        raise ValueError("an allocation needs a client with a name, clients and queues")
    return client in clients


def by_average(queues: Sequence[int], clients: Sequence[str], client: str) -> tuple[int, ...]:
    """AVG: one stretch each; the first clients get one queue more when the numbers do not divide evenly."""
    if not _checked(queues, clients, client):
        return ()
    return tuple(queues[at] for at in average(len(queues), len(clients), clients.index(client)))


def by_circle(queues: Sequence[int], clients: Sequence[str], client: str) -> tuple[int, ...]:
    """CIRCLE: every n-th queue of n clients."""
    if not _checked(queues, clients, client):
        return ()
    return tuple(queues[clients.index(client) :: len(clients)])


def by_consistent_hash(queues: Sequence[int], clients: Sequence[str], client: str) -> tuple[int, ...]:
    """CONSISTENT_HASH: each queue goes to the next place on the ring; each client has VIRTUAL_NODES places.

    A joining client takes queues from others and moves none between these. Shares are less even than with the others.
    """
    if not _checked(queues, clients, client):
        return ()
    ring = sorted((_place(f"client {name} {node}"), name) for name in clients for node in range(VIRTUAL_NODES))
    places = [place for place, _ in ring]

    def owner(queue: int) -> str:
        return ring[bisect.bisect_left(places, _place(f"queue {queue}")) % len(ring)][1]

    return tuple(queue for queue in queues if owner(queue) == client)


def _place(text: str) -> bytes:
    """A place on the ring."""
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def by_config(wanted: Sequence[int]) -> Strategy:
    """CONFIG: the configured queues that the topic has."""

    def configured(queues: Sequence[int], clients: Sequence[str], client: str) -> tuple[int, ...]:
        return tuple(sorted(set(wanted) & set(queues))) if _checked(queues, clients, client) else ()

    return configured


def by_machine_room(queues: Sequence[int], clients: Sequence[str], client: str) -> tuple[int, ...]:
    """MACHINE_ROOM: client ids have the form room@name; ids without a room share the room "".

    In the reference, brokers are in rooms and a client reads those of its own. PopMQ is one broker, so its queues are
    assigned to the rooms in equal stretches; the clients of a room share these, the remainder one by one.
    """
    if not _checked(queues, clients, client):
        return ()
    rooms = sorted({_room_of(name) for name in clients})
    mine = average(len(queues), len(rooms), rooms.index(_room_of(client)))
    mates = [name for name in clients if _room_of(name) == _room_of(client)]
    return shared_room([queues[at] for at in mine], mates, client)


def shared_room(queues: Sequence[int], clients: Sequence[str], client: str) -> tuple[int, ...]:
    """One client's share of its room's queues: equal stretches, then one each of the remainder."""
    size, more = divmod(len(queues), len(clients))
    index = clients.index(client)
    left_over = queues[size * len(clients) + index : size * len(clients) + index + 1] if index < more else []
    return (*queues[size * index : size * (index + 1)], *left_over)


def _room_of(client: str) -> str:
    """The room in a client id; "" without one."""
    return client.partition("@")[0] if "@" in client else ""


#: Strategies of QueryAssignment. CONFIG never reaches the broker: the list is the client's own.
STRATEGIES: dict[str, Strategy] = {
    "AVG": by_average,
    "CIRCLE": by_circle,
    "CONSISTENT_HASH": by_consistent_hash,
    "MACHINE_ROOM": by_machine_room,
}
