"""Messages that are not visible yet: delayed ones and half messages; and FIFO message groups that wait.

Recalling and rolling back are final: the message is never delivered.
"""

from typing import Any, cast

import popmq
from popmq.transaction import Resolution
from popmq_console.asking import Ask, Outcome, tried, wrong
from popmq_console.sorting import Columns, ordered
from popmq_console.views import address

SHOWN = 100


DELAYED: Columns[popmq.DelayedMessage] = {
    "Message": lambda one: one.message_id,
    "Topic": lambda one: one.topic,
    "Key": lambda one: tuple(one.preview.keys) if one.preview else (),
    "Body": None,
    "Due": lambda one: one.due_ms,
    "Stored": lambda one: one.stored_ms,
    "": None,
}
HALF: Columns[popmq.HalfMessage] = {
    "Message": lambda one: one.message_id,
    "Topic": lambda one: one.topic,
    "Key": lambda one: tuple(one.preview.keys) if one.preview else (),
    "Body": None,
    "Stored": lambda one: one.stored_ms,
    "Checks#": lambda one: one.checks,
    "Next check": lambda one: one.next_check_ms,
    "": None,
}


async def delayed(ask: Ask) -> dict[str, Any]:
    """Delayed messages of a topic, or of all, soonest first. Raises TopicNotFound."""
    topic = ask.value("topic")
    found, refusal = await tried(
        ask.client.messages.list_delayed(topic, max_messages=SHOWN), popmq.DelayedMessages((), 0)
    )
    order = ordered(found.messages, DELAYED, ask.value("sort"))
    return {"order": order, "total": found.total, "topic": topic, "refusal": refusal}


async def recall(ask: Ask) -> Outcome:
    """Takes a delayed message back. Raises MessageNotFound when it was delivered meanwhile."""
    topic = ask.given("topic")
    message_id = await ask.client.messages.recall(topic, ask.given("handle"))
    return Outcome(f"{message_id} is recalled and will not be delivered.", ask.back("/delayed"))


async def transactions(ask: Ask) -> dict[str, Any]:
    """Half messages of a topic, or of all, in each topic oldest first. Raises TopicNotFound."""
    topic = ask.value("topic")
    found, refusal = await tried(ask.client.transactions.list(topic, SHOWN), popmq.HalfMessages((), 0))
    order = ordered(found.messages, HALF, ask.value("sort"))
    return {"order": order, "total": found.total, "topic": topic, "refusal": refusal}


async def end(ask: Ask) -> Outcome:
    """Commits a half message or rolls it back. Raises TransactionNotFound, TransactionEnded, InvalidField."""
    resolution = ask.given("resolution")
    if resolution not in ("commit", "rollback"):
        raise wrong("resolution", f"{resolution!r} is neither commit nor rollback")
    await ask.client.transactions.end(ask.given("transaction"), cast(Resolution, resolution))
    what = "committed" if resolution == "commit" else "rolled back"
    return Outcome(f"The half message is {what}.", ask.back("/half"))


async def message_groups(ask: Ask) -> dict[str, Any]:
    """Waiting message groups of FIFO topics: each group and topic that has some, or those of one pair."""
    group, topic = ask.value("group"), ask.value("topic")
    if group and topic:
        found = await ask.client.message_groups.list(topic, group, SHOWN, bool(ask.value("stopped")))
        return {"group": group, "topic": topic, "pairs": [], "found": found, "stopped": ask.value("stopped")}
    stats = await ask.login.numbers.stats()
    pairs = [row for row in stats.groups if row.waiting or row.stopped]
    return {"group": group, "topic": topic, "pairs": pairs, "found": None, "stopped": ""}


async def resume(ask: Ask) -> Outcome:
    """Lets a stopped message group go on. Raises MessageNotFound when it is not stopped."""
    group, topic, name = ask.given("group"), ask.given("topic"), ask.given("message_group")
    dead_letter = ask.given("how") == "dead-letter"
    await ask.client.message_groups.resume(topic, group, name, dead_letter)
    what = "its first message is a dead letter now" if dead_letter else "its first message is tried again"
    return Outcome(f"{name} goes on; {what}.", ask.back(address("/message-groups", group=group, topic=topic)))
