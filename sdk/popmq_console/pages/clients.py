"""Readers and their messages: sessions, leases, owners.

A lease ends when its deadline comes, or here: then its messages are visible again at once, and its handles lapse. An
owner's lease belongs to the owner and is released with it.
"""

from typing import Any

import popmq
from popmq_console.asking import INT64_MAX, Ask, Outcome, tried
from popmq_console.numbers import greatest
from popmq_console.sorting import Columns, ordered
from popmq_console.views import counted, paged

#: Leases that one page asks for; more than a person reads, and a bounded answer with a million of them.
LEASES_SHOWN = 200


SESSIONS: Columns[popmq.ClientSession] = {
    "Client": lambda one: (one.client_id, one.host),
    "Group": lambda one: one.group,
    "Topics": lambda one: tuple(one.topics),
    "Calls#": lambda one: one.pops + one.pulls + one.sends,
    "In flight#": lambda one: one.in_flight,
    "Last seen": lambda one: one.last_seen_ms,
}
LEASES: Columns[popmq.Lease] = {
    "Group": lambda one: one.group,
    "Topic": lambda one: one.topic,
    "Client": lambda one: one.owner or one.client_id,
    "Kind": lambda one: one.kind,
    "Not done#": lambda one: one.undone,
    "Popped": lambda one: one.popped_ms,
    "Until": lambda one: one.due_ms,
    "": None,
}
KEYS: Columns[popmq.AccessKey] = {
    "Key": lambda one: one.name,
    "Allowed": lambda one: tuple(one.allow),
    "Ends": lambda one: one.expires_ms or INT64_MAX,
    "Proof": lambda one: (-one.secrets, -len(one.certificates)),
    "Connections#": lambda one: one.connections,
    "In flight#": lambda one: one.bytes_in_flight,
    "Calls/s at most#": lambda one: one.calls_per_s_max or INT64_MAX,
    "Limited#": lambda one: one.limited,
}


async def sessions(ask: Ask) -> dict[str, Any]:
    """Clients with a session, and those that called lately, of one group or all; all need the right admin."""
    group = ask.value("group")
    found, refusal = await tried(ask.client.sessions.list(group, recent=True), ())
    listed = sorted(found, key=lambda one: (one.group, one.client_id, one.host))
    order = ordered(listed, SESSIONS, ask.value("sort"))
    return {"rows": paged(order.items, ask.value("page")), "order": order, "group": group, "refusal": refusal}


async def leases(ask: Ask) -> dict[str, Any]:
    """Leases, and messages in backoff, soonest first; of a group, of a topic, or all, which needs the right admin."""
    group, topic = ask.value("group"), ask.value("topic")
    found, refusal = await tried(ask.client.leases.list(group, topic, LEASES_SHOWN), popmq.Leases((), 0))
    order = ordered(found.leases, LEASES, ask.value("sort"))
    return {"order": order, "total": found.total, "group": group, "topic": topic, "refusal": refusal}


async def end_lease(ask: Ask) -> Outcome:
    """Ends a lease before its deadline. Raises HandleLapsed when it is over, InvalidField, GroupNotFound."""
    messages = await ask.client.leases.end(ask.given("group"), ask.given("lease_id"))
    sentence = f"The lease is over; {counted(messages, 'message')} that it had not finished will be delivered again."
    return Outcome(sentence, ask.back("/leases"))


async def keys(ask: Ask) -> dict[str, Any]:
    """The access keys and their rights: all for the right admin, else the caller's. They are changed in their file."""
    found = await ask.client.access_keys.list()
    order = ordered(found.access_keys, KEYS, ask.value("sort"))
    rows = paged(order.items, ask.value("page"))
    return {"rows": rows, "order": order, "enabled": found.enabled, "caller": found.caller}


async def owners(ask: Ask) -> dict[str, Any]:
    """Owners, their messages, and the backlog of their groups, which shows the lag of a Spark query."""
    group = ask.value("group")
    found, refusal = await tried(ask.client.owners.list(group), ())
    rows = sorted(found, key=lambda one: (one.group, one.owner))
    behind: dict[str, int] = {}
    ages: dict[str, list[float | None]] = {}
    for row in (await ask.login.numbers.stats()).groups:
        behind[row.group] = behind.get(row.group, 0) + row.ready + row.retry
        ages.setdefault(row.group, []).append(row.oldest_age)
    oldest = {group: greatest(each) for group, each in ages.items()}
    columns: Columns[popmq.Owner] = {
        "Owner": lambda one: one.owner,
        "Group": lambda one: one.group,
        "Group lag#": lambda one: behind.get(one.group, 0),
        "Oldest#": lambda one: oldest.get(one.group, 0.0),
        "Holds#": lambda one: one.messages,
        "Tokens#": lambda one: one.tokens,
        "Gen.#": lambda one: one.generation,
        "Epoch#": lambda one: one.acked_epoch,
        "Lease until": lambda one: one.lease_until_ms,
        "": None,
    }
    order = ordered(rows, columns, ask.value("sort"))
    lags = {"behind": behind, "oldest": oldest}
    return {"rows": paged(order.items, ask.value("page")), "order": order, "group": group, "refusal": refusal, **lags}


async def release_owner(ask: Ask) -> Outcome:
    """Ends an owner's lease, as `popmq owners release` does. Raises OwnerNotFound, GroupNotFound."""
    group, owner = ask.given("group"), ask.given("owner")
    released = await ask.client.owners.release(group, owner)
    what = f"{counted(released, 'message')} that it held will be delivered again"
    return Outcome(f"{owner} is released: {what}.", ask.back("/owners"))
