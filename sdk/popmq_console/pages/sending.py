"""Sending one message from a form, with the key of the login: the broker decides whether it may.

The body is sent as it was typed, with a line feed between lines: browsers send CR LF, whatever the user has typed.
"""

from typing import Any

import popmq
from popmq_console.asking import Ask, Outcome, wrong
from popmq_console.views import address


async def form(ask: Ask) -> dict[str, Any]:
    """The empty form, for the topic of the URL."""
    names = [row.topic for row in (await ask.login.numbers.stats()).topics if not row.topic.startswith("%")]
    return {"topic": ask.value("topic"), "names": names[:1000]}


async def send(ask: Ask) -> Outcome:
    """Sends the message. Raises TopicNotFound, InvalidField, StorageFull and what else a send raises."""
    topic = ask.given("topic")
    message = popmq.Message(
        _lines(ask, "body"),
        key=ask.given("key"),
        tag=ask.given("tag"),
        properties=_properties(_lines(ask, "properties")),
        message_group=ask.given("message_group"),
        lite_topic=ask.given("lite_topic"),
        priority=ask.number("priority") or 0,
        delay=ask.duration("delay") or 0.0,
        ttl=ask.duration("ttl") or 0.0,
    )
    receipt = await ask.client.send(topic, message)
    if receipt.offset < 0:
        return Outcome(f"Stored as {receipt.message_id}; it is delayed.", address("/delayed", topic=topic))
    place = address("/message", topic=topic, queue=receipt.queue, offset=receipt.offset)
    return Outcome(f"Stored as {receipt.message_id}.", place if ask.login.admin else ask.back("/messages"))


def _lines(ask: Ask, name: str) -> str:
    return next(iter(ask.form.get(name, ())), "").replace("\r\n", "\n")


def _properties(text: str) -> dict[str, str]:
    """Properties of lines such as region=eu. Raises InvalidField."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        name, separator, value = line.partition("=")
        if line.strip() and not (separator and name.strip()):
            raise wrong("properties", f"line {number} of the properties is not name=value")
        if line.strip():
            found[name.strip()] = value.strip()
    return found
