"""Readers and their messages: sessions, leases, owners.

A lease ends when its deadline comes, or here: then its messages are visible again at once, and its handles lapse. An
owner's lease belongs to the owner and is released with it.
"""

from typing import Any

import popmq
from popmq_console.asking import Ask, Outcome, tried
from popmq_console.views import counted, paged

#: Leases that one page asks for; more than a person reads, and a bounded answer with a million of them.
LEASES_SHOWN = 200


async def sessions(ask: Ask) -> dict[str, Any]:
    """Clients with a session, of one group or all; all need the right admin."""
    group = ask.value("group")
    found, refusal = await tried(ask.client.sessions(group), ())
    rows = sorted(found, key=lambda one: (one.group, one.client_id))
    return {"rows": paged(rows, ask.value("page")), "group": group, "refusal": refusal}


async def leases(ask: Ask) -> dict[str, Any]:
    """Leases, and messages in backoff, soonest first; of a group, of a topic, or all, which needs the right admin."""
    group, topic = ask.value("group"), ask.value("topic")
    found, refusal = await tried(ask.client.leases(group, topic, LEASES_SHOWN), popmq.Leases((), 0))
    return {"leases": found.leases, "total": found.total, "group": group, "topic": topic, "refusal": refusal}


async def end_lease(ask: Ask) -> Outcome:
    """Ends a lease before its deadline. Raises HandleLapsed when it is over, InvalidField, GroupNotFound."""
    messages = await ask.client.end_lease(ask.given("group"), ask.given("lease_id"))
    sentence = f"The lease is over; {counted(messages, 'message')} that it had not finished will be delivered again."
    return Outcome(sentence, ask.back("/leases"))


async def keys(ask: Ask) -> dict[str, Any]:
    """The access keys and their rights: all for the right admin, else the caller's. They are changed in their file."""
    found = await ask.client.access_keys()
    return {"rows": paged(found.access_keys, ask.value("page")), "enabled": found.enabled, "caller": found.caller}


async def owners(ask: Ask) -> dict[str, Any]:
    """Owners, their messages, and the backlog of their groups, which shows the lag of a Spark query."""
    group = ask.value("group")
    found, refusal = await tried(ask.client.owners(group), ())
    rows = sorted(found, key=lambda one: (one.group, one.owner))
    behind: dict[str, int] = {}
    oldest: dict[str, float] = {}
    for row in (await ask.login.numbers.stats()).groups:
        behind[row.group] = behind.get(row.group, 0) + row.ready + row.retry
        oldest[row.group] = max(oldest.get(row.group, 0.0), row.oldest_age)
    shown = paged(rows, ask.value("page"))
    return {"rows": shown, "group": group, "behind": behind, "oldest": oldest, "refusal": refusal}


async def release_owner(ask: Ask) -> Outcome:
    """Ends an owner's lease, as `popmq owners release` does. Raises OwnerNotFound, GroupNotFound."""
    group, owner = ask.given("group"), ask.given("owner")
    released = await ask.client.release_owner(group, owner)
    what = f"{counted(released, 'message')} that it held will be delivered again"
    return Outcome(f"{owner} is released: {what}.", ask.back("/owners"))
