"""The options of `format("popmq")`: one table, from which strings become typed values with limits.

Spark hands option names over in lower case and every value as a string; this module turns them into `Options` or says
in one sentence which option is wrong, what it was, and what would be right.
"""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

#: What an owner may hold at once, by the broker's limits; more rows in one micro-batch could never be popped.
ROWS_MAX = 1_000_000

Start = Literal["earliest", "latest"] | datetime

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SIZE = re.compile(r"(\d+)\s*(?:([kmg])(?:i?b)?|b)?", re.IGNORECASE)
_BYTES = {None: 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class OptionError(ValueError):
    """An option is missing, unknown, or has a value that cannot be used. The message says which, and what to write."""


def word(text: str) -> str:
    """A name, without the blanks around it."""
    if not text.strip():
        raise ValueError("a name")
    return text.strip()


def secret(text: str) -> str:
    """Any text. Error texts never contain it."""
    return text


def _start(text: str) -> Start:
    word = text.strip()
    if word.lower() == "earliest":
        return "earliest"
    if word.lower() == "latest":
        return "latest"
    expected = "earliest, latest, a time with its zone like 2026-01-31T12:00:00Z, or milliseconds since 1970"
    try:
        moment = datetime.fromtimestamp(int(word) / 1000, UTC) if word.isdigit() else datetime.fromisoformat(word)
    except (ValueError, OverflowError, OSError):
        raise ValueError(expected) from None
    if moment.tzinfo is None:
        raise ValueError(expected)
    return moment


def _flag(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.strip().lower() == "true"


def whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.strip().isdecimal() or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return parse


def duration(low: str, high: str) -> Callable[[str], float]:
    def seconds(text: str) -> float | None:
        match = _DURATION.fullmatch(text.strip().lower())
        return float(match[1]) * _SECONDS[match[2]] if match else None

    def parse(text: str) -> float:
        value = seconds(text)
        if value is None or not (seconds(low) or 0.0) <= value <= (seconds(high) or 0.0):
            raise ValueError(f"a time with its unit (ms, s, m, h) from {low} to {high}")
        return value

    return parse


def _size(low: str, high: str) -> Callable[[str], int]:
    def size(text: str) -> int | None:
        match = _SIZE.fullmatch(text.strip())
        return int(match[1]) * _BYTES[match[2] and match[2].lower()] if match else None

    def parse(text: str) -> int:
        value = size(text)
        if value is None or not (size(low) or 0) <= value <= (size(high) or 0):
            raise ValueError(f"a size in bytes or with its unit (k, m, g) from {low} to {high}")
        return value

    return parse


def _later(text: str) -> None:
    """An option of other sources that this one does not have: always refused, with what to use instead."""
    raise ValueError("nothing yet: a later release serves it")


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table: the name as users write it, how its text is read, its default, and what it does.

    `parse` raises ValueError with the words for what would be right. `default` is a text like a user's; None =
    required, "" = the option is absent unless given.
    """

    name: str
    parse: Callable[[str], Any]
    default: str | None
    text: str
    alias: str = ""

    @property
    def field(self) -> str:
        """The attribute of `Options`: maxRowsPerTrigger → max_rows_per_trigger."""
        return re.sub(r"[A-Z]", lambda letter: "_" + letter[0].lower(), self.name)


CONNECTION = (
    Option("endpoint", word, None, "host:port of the broker"),
    Option("tls", _flag, "false", "connect with TLS"),
    Option("tlsCa", word, "", "with TLS, trusting this certificate: a PEM file that every machine has"),
    Option("accessKey", word, "", "the access key of a broker that asks for one; else POPMQ_ACCESS_KEY"),
    Option("secret", secret, "", "its secret; better POPMQ_SECRET or POPMQ_SECRET_FILE, on driver and executors"),
)

OPTIONS = (
    *CONNECTION,
    Option("topic", word, None, "the topic to read"),
    Option("group", word, None, "the group to read as; two queries with one group share its messages"),
    Option("startingOffsets", _start, "earliest", "where a group new to the topic starts: earliest, latest, a time"),
    Option("maxRowsPerTrigger", whole(1, ROWS_MAX), "100000", "rows of a micro-batch", alias="maxOffsetsPerTrigger"),
    Option("maxBytesPerTrigger", _size("1m", "1024g"), "128m", "bodies of one micro-batch at most; a soft bound"),
    Option("minRowsPerTrigger", whole(1, ROWS_MAX), "1", "wait for so many rows …", alias="minOffsetsPerTrigger"),
    Option("maxTriggerDelay", duration("0s", "12h"), "15m", "… but no longer than this once there is a row"),
    Option("minPartitions", whole(1, 1024), "1", "tasks of one micro-batch at least"),
    Option("maxRecordsPerPartition", whole(1, ROWS_MAX), "20000", "rows of one task, up to maxPartitions tasks"),
    Option("maxPartitions", whole(1, 1024), "64", "tasks of one micro-batch at most"),
    Option("invisibleTime", duration("1s", "12h"), "60s", "the lease on what was popped; renewed three times in it"),
    Option("failOnDataLoss", _flag, "true", "fail when a message of a re-read batch is gone for good"),
    Option("failOnLeaseLoss", _flag, "false", "fail when others popped messages of a batch whose lease had run out"),
    Option("exclusiveOwner", _flag, "false", "others never pop what this query holds, not even after its lease"),
    Option("includeProperties", _flag, "false", "adds the column properties"),
    Option("longPollTimeout", duration("0s", "60s"), "500ms", "how long an idle trigger waits at the broker"),
    Option("brokerUnavailableTimeout", duration("1s", "12h"), "120s", "how long a broker may be away"),
    Option("filter", _later, "", "only messages with these tags"),
    Option("topics", _later, "", "several topics in one query"),
)

#: What users of other sources write first, and what it is called here.
_ELSEWHERE = {
    "subscribe": "topic",
    "kafka.bootstrap.servers": "endpoint",
    "kafka.group.id": "group",
    "groupid": "group",
    "includeheaders": "includeProperties",
    "path": "topic",
}


@dataclass(frozen=True, slots=True)
class Broker:
    """How driver and tasks reach the broker: it travels with tasks, never with an offset. The secret is not shown."""

    endpoint: str
    tls: bool = False
    tls_ca: str = ""
    access_key: str = ""
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one query, typed: times in seconds, sizes in bytes. `OPTIONS` tells what each does."""

    endpoint: str
    topic: str
    group: str
    starting_offsets: Start
    max_rows_per_trigger: int
    max_bytes_per_trigger: int
    min_rows_per_trigger: int
    max_trigger_delay: float
    min_partitions: int
    max_records_per_partition: int
    max_partitions: int
    invisible_time: float
    fail_on_data_loss: bool
    fail_on_lease_loss: bool
    exclusive_owner: bool
    include_properties: bool
    long_poll_timeout: float
    broker_unavailable_timeout: float
    tls: bool = False
    tls_ca: str = ""
    access_key: str = ""
    secret: str = field(default="", repr=False)

    @property
    def broker(self) -> Broker:
        """How to reach the broker."""
        return Broker(self.endpoint, self.tls, self.tls_ca, self.access_key, self.secret)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "Options":
        """Reads the options of a query; names in any case. Raises OptionError, for all faults of the names at once."""
        values = parse_values(OPTIONS, given, _ELSEWHERE)
        if values["min_partitions"] > values["max_partitions"]:
            raise OptionError(
                f"popmq: minPartitions = {values['min_partitions']} is more than "
                f"maxPartitions = {values['max_partitions']}"
            )
        return cls(**values)


def parse_values(table: Sequence[Option], given: Mapping[str, str], elsewhere: Mapping[str, str]) -> dict[str, Any]:
    """The values of a table's options by field; names in any case. Raises OptionError, for all faults of the names.

    `elsewhere`: what users of other sources write first, and what it is called here.
    """
    texts = {name.lower(): value for name, value in given.items()}
    _refuse_unknown(table, texts, elsewhere)
    return {option.field: _value(option, texts) for option in table if _is_wanted(option, texts)}


def _is_wanted(option: Option, texts: Mapping[str, str]) -> bool:
    return option.default != "" or option.name.lower() in texts


def _value(option: Option, texts: Mapping[str, str]) -> Any:
    text = texts.get(option.name.lower(), texts.get(option.alias.lower(), option.default))
    if text is None:
        raise OptionError(f"popmq: the option {option.name} is missing: {option.text}")
    try:
        return option.parse(text)
    except ValueError as expected:
        raise OptionError(f"popmq: option {option.name} = {text!r}; what can stand here is {expected}") from None


def _refuse_unknown(table: Sequence[Option], texts: Mapping[str, str], elsewhere: Mapping[str, str]) -> None:
    names = {name.lower(): name for option in table for name in (option.name, option.alias) if name}
    wrong = []
    for name in sorted(set(texts) - set(names)):
        near = [names[key] for key in difflib.get_close_matches(name, names, n=1, cutoff=0.7)]
        meant = elsewhere.get(name) or (near[0] if near else "")
        wrong.append(f"{name!r}" + (f" (did you mean {meant}?)" if meant else ""))
    if wrong:
        known = ", ".join(option.name for option in table if option.parse is not _later)
        raise OptionError(f"popmq: unknown option {', '.join(wrong)}; the options are {known}")
