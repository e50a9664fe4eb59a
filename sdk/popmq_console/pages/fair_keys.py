"""Turns by fair key: the form of a group, and the keys that wait.

Key          none, the first key of a message, or a property
Exceptions   a line for each named key, as acme=100,0: leased messages, and messages a second; 0 is no limit
"""

from typing import Any

import popmq
from popmq_console.asking import UINT32_MAX, Ask, Outcome, whole, wrong
from popmq_console.views import address


async def change(ask: Ask) -> Outcome:
    """Sets a group's turns by key, or ends them. Raises InvalidField, GroupNotFound."""
    name, fair = ask.given("name"), _of_form(ask)
    await ask.client.groups.update(name, fair_keys=fair or False)
    said = f"{name} takes turns by key." if fair else f"{name} takes no turns by key."
    return Outcome(said, address("/group", name=name))


def shown(fair: popmq.FairKeys | None) -> dict[str, Any]:
    """The values of the form."""
    given = fair or popmq.FairKeys()
    limits = [f"{one.key}={one.in_flight_max},{one.messages_per_s}" for one in given.exceptions]
    source = "property" if given.property else "key" if given.message_key else "none"
    return {"source": source, "keys": given, "exceptions": "\n".join(limits)}


def _of_form(ask: Ask) -> popmq.FairKeys | None:
    source, name = ask.given("source"), ask.given("property")
    if source == "none":
        return None
    if source not in ("key", "property"):
        raise wrong("source", f"a fair key is none, key or property, not {source!r}")
    if source == "property" and not name:
        raise wrong("property", "name the property whose value is the key")
    return popmq.FairKeys(
        property=name if source == "property" else "",
        message_key=source == "key",
        label_separator=ask.given("label_separator"),
        in_flight_max=ask.number("in_flight_max") or 0,
        messages_per_s=ask.number("messages_per_s") or 0,
        exceptions=[_limits_of(line.strip()) for line in ask.given("exceptions").splitlines() if line.strip()],
    )


def _limits_of(line: str) -> popmq.FairKeyLimits:
    key, equals, numbers = line.rpartition("=")
    first, _, second = numbers.partition(",")
    in_flight_max, rate = whole(first.strip()), whole(second.strip() or "0")
    if not equals or in_flight_max is None or rate is None or max(in_flight_max, rate) > UINT32_MAX:
        raise wrong("exceptions", f"{line!r} is not like acme=100,0: leased messages, and messages a second")
    return popmq.FairKeyLimits(key, in_flight_max, rate)
