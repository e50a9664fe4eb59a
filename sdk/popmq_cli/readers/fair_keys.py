"""The options of `popmq group` for fair keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import click

import popmq

_OPTIONS = ("fair_key", "fair_label", "key_in_flight_max", "key_rate")


def names_fair_keys(given: dict[str, Any]) -> bool:
    """Whether any of the options is given."""
    return bool(given["key_limits"]) or any(given[name] is not None for name in _OPTIONS)


def fair_keys_of(given: dict[str, Any], before: popmq.FairKeys | None) -> popmq.FairKeys | Literal[False] | None:
    """The fair keys that the options ask for, changes of `before`; None: none is given. Removes them from `given`."""
    named, off = names_fair_keys(given), given.pop("no_fair_keys")
    key, separator, in_flight_max, rate = (given.pop(name) for name in _OPTIONS)
    exceptions = tuple(map(_limits_of, given.pop("key_limits")))
    if off and named:
        raise click.UsageError("--no-fair-keys is given with other options of fair keys")
    if off or not named:
        return False if off else None
    if key is None and before is None:
        raise click.UsageError('the group has no fair keys: give --fair-key too, as "property:NAME" or "key"')
    changed = (before or popmq.FairKeys()) if key is None else replace(before or popmq.FairKeys(), **_source_of(key))
    changes = {"label_separator": separator, "in_flight_max": in_flight_max, "messages_per_s": rate}
    changes |= {"exceptions": exceptions or None}
    return replace(changed, **{name: value for name, value in changes.items() if value is not None})


def _source_of(text: str) -> dict[str, Any]:
    kind, _, name = text.partition(":")
    if text == "key":
        return {"property": "", "message_key": True}
    if kind == "property" and name:
        return {"property": name, "message_key": False}
    raise click.BadParameter(f'{text!r} is neither "property:NAME" nor "key"', param_hint="--fair-key")


def _limits_of(text: str) -> popmq.FairKeyLimits:
    key, equals, numbers = text.rpartition("=")
    in_flight_max, _, rate = numbers.partition(",")
    try:
        if not equals:
            raise ValueError
        return popmq.FairKeyLimits(key, int(in_flight_max), int(rate or 0))
    except ValueError:
        raise click.BadParameter(f'{text!r} is not like "acme=100,0"', param_hint="--key-limits") from None


def fair_text(fair: popmq.FairKeys | None) -> str:
    """One line for `describe`."""
    if fair is None:
        return "no"
    parts = [f"property {fair.property}" if fair.property else "the first key"]
    parts += [f"labels before {fair.label_separator!r}"] if fair.label_separator else []
    parts += [_limits(fair)] if fair.in_flight_max or fair.messages_per_s else []
    parts += [f"{one.key}: {_limits(one)}" for one in fair.exceptions]
    return "; ".join(parts)


def _limits(of: popmq.FairKeys | popmq.FairKeyLimits) -> str:
    limits = [f"{of.in_flight_max:,} in flight"] if of.in_flight_max else []
    limits += [f"{of.messages_per_s:,} a second"] if of.messages_per_s else []
    return "at most " + " and ".join(limits) if limits else "no limit"
