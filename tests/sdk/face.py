"""The public calls of a client: its own, and those of its namespaces."""

import inspect
from collections.abc import Callable
from functools import cached_property
from typing import Any

import popmq

AnyClient = type[popmq.Client] | type[popmq.AsyncClient]


def namespaces_of(client: AnyClient) -> dict[str, type]:
    """Name → class, in the order of their definition. A client that calls nobody makes them."""
    made = client("127.0.0.1:1")
    found = {name: member for kind in client.__mro__ for name, member in vars(kind).items()}
    return {name: type(getattr(made, name)) for name, member in found.items() if isinstance(member, cached_property)}


def public(kind: type) -> dict[str, Callable[..., Any]]:
    """Its methods, in the order of their definition."""
    found = {name: each for one in reversed(kind.__mro__) for name, each in vars(one).items()}
    return {name: each for name, each in found.items() if inspect.isfunction(each) and not name.startswith("_")}


def calls_of(client: AnyClient) -> dict[str, Callable[..., Any]]:
    """Name, such as "send" or "topics.create" → function."""
    calls = public(client)
    for space, kind in namespaces_of(client).items():
        calls |= {f"{space}.{name}": each for name, each in public(kind).items()}
    return calls
