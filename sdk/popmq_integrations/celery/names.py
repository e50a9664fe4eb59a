"""The names that queues and exchanges have in a broker, and the filters that bindings are."""

import re
from collections.abc import Iterable
from functools import cache

#: What a topic may be named with. Other characters are written as `..` and two hexadecimal digits for each byte.
_PLAIN = re.compile(r"[A-Za-z0-9_.-]")
#: Ends the name of an exchange's topic. No queue has such a name: `ex` is not hexadecimal.
_EXCHANGE = "..exchange"
#: Of a queue that is not written into a topic of its own, but is bound to the exchange without a name.
DEFAULT_EXCHANGE = ""
EVERYTHING = "routing_key IS NOT NULL"
NOTHING = "routing_key IS NULL"
_CLAUSE = re.compile(r"routing_key (?:(?:=|STARTSWITH) '(?:[^']|'')*'|IS NOT NULL)")


def topic_of_queue(queue: str) -> str:
    """The topic and the group of a queue: its name, if a topic may have it. No other queue has the same."""
    written = ""
    for character in queue:
        plain = _PLAIN.match(character) and not (character == "." and written.endswith("."))
        written += character if plain else "".join(f"..{byte:02x}" for byte in character.encode())
    return written


def topic_of_exchange(exchange: str) -> str:
    """The topic into which everything is sent that is published to an exchange."""
    return topic_of_queue(exchange) + _EXCHANGE


def is_exchange(topic: str) -> bool:
    """Whether this is the topic of an exchange."""
    return topic.endswith(_EXCHANGE)


def clause(kind: str, key: str) -> str:
    """What a binding lets through, as SQL92. Of a pattern with wildcards it is what begins as the pattern does."""
    if kind == "fanout":
        return EVERYTHING
    # `a.#` also matches `a`, so its dot is not part of what a routing key has to begin with.
    stem = re.split(r"\.?#|(?:^|(?<=\.))\*(?=\.|$)", key, maxsplit=1)[0] if kind == "topic" else key
    text = stem.replace("'", "''")
    if stem == key:
        return f"routing_key = '{text}'"
    return f"routing_key STARTSWITH '{text}'" if stem else EVERYTHING


def with_clause(sql: str, more: str) -> str:
    """A filter that also lets this through."""
    clauses = _CLAUSE.findall(sql)
    return sql if more in clauses else " OR ".join([*clauses, more])


def without_clause(sql: str, less: str) -> str:
    """A filter without this binding."""
    return " OR ".join(each for each in _CLAUSE.findall(sql) if each != less) or NOTHING


def lets_through(sql: str, without: Iterable[str], key: str) -> bool:
    """Whether a filter lets a routing key through by other clauses than these."""
    return any(_passes(each, key) for each in _CLAUSE.findall(sql) if each not in without)


def _passes(clause: str, key: str) -> bool:
    text = clause.partition("'")[2][:-1].replace("''", "'")
    return key == text if clause.startswith("routing_key = ") else key.startswith(text)


@cache
def _pattern(key: str) -> re.Pattern[str]:
    """The pattern of a topic exchange: `*` is a word, `#` any number of words."""
    escaped = re.escape(key).replace(r"\*", r"[^.]+")
    return re.compile(escaped.replace(r"\.\#", r"(?:\..*)?").replace(r"\#\.", r"(?:.*\.)?").replace(r"\#", ".*"))


def matches(patterns: Iterable[str], key: str) -> bool:
    """Whether one of these patterns of a topic exchange matches a routing key."""
    return any(_pattern(pattern).fullmatch(key) for pattern in patterns)
