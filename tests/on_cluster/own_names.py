"""Names of a test's own: while it runs, its gateways call `orders` `k3f9a1%orders` at the brokers, and show no others.

So one cluster serves tests that all use the same names, one after the other or beside each other, and none sees what
another one left.
"""

import hashlib
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from unittest import mock

from popmq_server.cluster import names

#: Every prefix begins so. Name servers and brokers show them to operators who look at a cluster of tests.
FIRST = "k"


@contextmanager
def own_names() -> Iterator[str]:
    """Gives the prefix of the names at the brokers."""
    prefix = f"{FIRST}{uuid.uuid4().hex[:6]}%"
    with mock.patch.multiple(
        names,
        _known=_prefixed(prefix),
        shown=_without(prefix),
        shown_topics=_only(prefix, names.shown_topics),
        shown_groups=_only(prefix, names.shown_groups),
        retry_topic=_retry_topic(prefix),
    ):
        _forget()
        yield prefix
    _forget()


def _forget() -> None:
    """Names that were translated before."""
    names.broker_topic.cache_clear()
    names.broker_group.cache_clear()


def _prefixed(prefix: str) -> Callable[[str, str, Callable[[str], None]], str]:
    known = names._known

    def translated(name: str, field: str, validate: Callable[[str], None]) -> str:
        plain = known(name, field, validate)
        reserved = names._is_of_a_user(plain) and names._is_group_of_a_user(plain)
        return prefix + plain if reserved else plain

    return translated


def _without(prefix: str) -> Callable[[str], str]:
    shown, own = names.shown, prefix.replace("%", ".")

    def translated(name: str) -> str:
        return shown(name).replace(own, "", 1)

    return translated


def _only(prefix: str, every: Callable[..., list[str]]) -> Callable[..., list[str]]:
    def chosen(found: Iterable[str], *more: Iterable[str]) -> list[str]:
        return every([name for name in found if name.removeprefix("%DLQ%").startswith(prefix)], *more)

    return chosen


def _retry_topic(prefix: str) -> Callable[[str, str], str]:
    retry_topic = names.retry_topic

    def hidden(group: str, topic: str) -> str:
        mark = hashlib.blake2b(prefix.encode(), digest_size=4).hexdigest()
        return f"{retry_topic(group, topic)}_{mark}"

    return hidden
