"""The options of `format("popmq")`: one table, from which strings become typed values with limits.

Spark hands option names over in lower case and every value as a string; this module turns them into `Options` or says
in one sentence which option is wrong, what it was, and what would be right.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from popmq_spark.positions import Start, start

#: The broker's limit of messages that an owner holds; more rows in one micro-batch could never be popped.
ROWS_MAX = 1_000_000

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


def _endpoint(text: str) -> str:
    if "," in text:
        raise ValueError("one host:port: a broker has one address; read several brokers by a query each")
    return word(text)


def secret(text: str) -> str:
    """Any text. Error texts never contain it."""
    return text


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


def _words(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(word(name) for name in text.split(","))


def _pattern(text: str) -> re.Pattern[str]:
    """Matches whole names, as `subscribePattern` of other sources does."""
    try:
        return re.compile(word(text))
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from None


def one_of(*words: str) -> Callable[[str], str]:
    """One of a few words, in any case."""

    def parse(text: str) -> str:
        if text.strip().lower() not in words:
            raise ValueError(" or ".join(words))
        return text.strip().lower()

    return parse


def mode(*modes: str) -> Callable[[str], str]:
    """One of the modes of a read. `browse` is another word for `offsets`."""

    def parse(text: str) -> str:
        asked = text.strip().lower()
        asked = "offsets" if asked == "browse" else asked
        if asked == "drain":
            raise ValueError("nothing: popmq_spark.drain empties a topic")
        if asked not in modes:
            raise ValueError(" or ".join(modes))
        return asked

    return parse


def _offsets_only(text: str) -> None:
    """An option of the other mode: always refused, with the mode that has it."""
    raise ValueError("nothing with mode=lease, which reads whatever its group is given: use mode=offsets")


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table: the name as users write it, the parser of its text, its default, and its effect.

    `parse` raises ValueError with the valid forms. `default` is a text like a user's; None =
    required, "" = the option is absent unless given. `variable`: where it is not given, the environment's POPMQ_FIELD
    counts before the default.
    """

    name: str
    parse: Callable[[str], Any]
    default: str | None
    text: str
    alias: str = ""
    variable: bool = False

    @property
    def field(self) -> str:
        """The attribute of `Options`: maxRowsPerTrigger → max_rows_per_trigger."""
        return re.sub(r"[A-Z]", lambda letter: "_" + letter[0].lower(), self.name)


# The variables are those of the driver, and what they say goes with the tasks: a task that looked for itself could
# reach another broker. The key and its secret are looked up in each process instead, so that no secret travels.
CONNECTION = (
    Option("endpoint", _endpoint, None, "host:port of the broker; else POPMQ_ENDPOINT", variable=True),
    Option("tls", _flag, "false", "connect with TLS; else POPMQ_TLS", variable=True),
    Option(
        "tlsCa",
        word,
        "",
        "with TLS, the certificate to trust: a PEM file that every machine has; else POPMQ_TLS_CA",
        variable=True,
    ),
    Option(
        "clientCert",
        word,
        "",
        "with TLS, the client certificate to show: a PEM file that every machine has; else POPMQ_CLIENT_CERT",
        variable=True,
    ),
    Option(
        "clientKey",
        word,
        "",
        "the private key of clientCert: a PEM file that every machine has; else POPMQ_CLIENT_KEY",
        variable=True,
    ),
    Option("accessKey", word, "", "the name of the access key, if the broker has access keys; else POPMQ_ACCESS_KEY"),
    Option(
        "secret",
        secret,
        "",
        "the secret of accessKey; better POPMQ_SECRET or POPMQ_SECRET_FILE, on driver and executors",
    ),
)

#: The mode decides which table the other options are looked up in.
MODE = Option(
    "mode",
    mode("lease", "offsets"),
    "lease",
    "`lease`; or `offsets` (or `browse`), which reads by offset and leases nothing",
)

#: Options that select topics and messages, in both modes.
TOPICS = (
    Option("topic", word, "", "the topic to read; or topics, or topicPattern"),
    Option("topics", _words, "", "several topics, with commas between them", alias="subscribe"),
    Option("topicPattern", _pattern, "", "every topic whose whole name matches", alias="subscribePattern"),
    Option("tag", word, "", "only messages with this tag, or with one of several tags with two bars between them"),
    Option("sql", word, "", "only messages that this SQL92 condition selects"),
)

OPTIONS = (
    *CONNECTION,
    MODE,
    *TOPICS,
    Option(
        "group",
        word,
        None,
        "the group to read as. Only one query of an application may read as it; applications share its messages",
    ),
    Option("startingOffsets", start, "earliest", "where a group new to the topic starts: earliest, latest, a time"),
    Option("maxRowsPerTrigger", whole(1, ROWS_MAX), "100000", "rows of a micro-batch", alias="maxOffsetsPerTrigger"),
    Option("maxBytesPerTrigger", _size("1m", "1024g"), "128m", "bodies of one micro-batch at most; a soft bound"),
    Option("minRowsPerTrigger", whole(1, ROWS_MAX), "1", "wait for this many rows …", alias="minOffsetsPerTrigger"),
    Option("maxTriggerDelay", duration("0s", "12h"), "15m", "… but no longer than this once there is a row"),
    Option("minPartitions", whole(1, 1024), "1", "tasks of one micro-batch at least"),
    Option("maxRecordsPerPartition", whole(1, ROWS_MAX), "20000", "rows of one task, up to maxPartitions tasks"),
    Option("maxPartitions", whole(1, 1024), "64", "tasks of one micro-batch at most"),
    Option(
        "invisibleTime",
        duration("1s", "12h"),
        "60s",
        "the lease on popped messages; the query renews it three times in this time",
    ),
    Option("failOnDataLoss", _flag, "true", "fail when a message of a re-read batch is gone for good"),
    Option(
        "failOnLeaseLoss", _flag, "false", "fail if other consumers popped messages of a batch after its lease expired"
    ),
    Option(
        "exclusiveOwner",
        _flag,
        "false",
        "other consumers never pop messages that this query holds, even after its lease",
    ),
    Option("includeProperties", _flag, "false", "adds the column properties"),
    Option("includeKeys", _flag, "false", "adds the column keys: all keys of a message, not only the first"),
    Option("decode", _flag, "true", "unpacks bodies whose encoding is GZIP or ZLIB, up to 32 MiB each"),
    Option("includeDeadLetter", _flag, "false", "adds the column dead_letter for messages of a dead-letter topic"),
    Option("longPollTimeout", duration("0s", "60s"), "500ms", "how long an idle trigger waits at the broker"),
    Option(
        "brokerUnavailableTimeout", duration("1s", "12h"), "120s", "how long the query waits for a broker that is down"
    ),
    Option("drainPlan", json.loads, "", ""),  # passes the plan of a drain to its readers: draining.py
    Option("endingOffsets", _offsets_only, "", ""),
)


_TIMES = "a time such as 2026-01-31T12:00:00Z"
#: Options of Kafka's client, and their names here, or what to do instead.
KAFKA = {
    "kafka.bootstrap.servers": "endpoint",
    "kafka.security.protocol": "tls",
    "kafka.sasl.mechanism": "use accessKey and secret",
    "kafka.sasl.jaas.config": "use accessKey and secret",
    "kafka.ssl.truststore.location": "tlsCa",
    "kafka.ssl.keystore.location": "use clientCert and clientKey",
    "kafka.request.timeout.ms": "brokerUnavailableTimeout",
    "kafka.acks": "leave it out: every OK is on disk",
    "kafka.compression.type": "compress the body, and name its encoding in the column encoding",
    "kafka.transactional.id": "use txnAppId in the sink",
}
#: Option names of other sources, likewise.
ELSEWHERE = KAFKA | {
    "subscribe": "topic",
    "subscribepattern": "topicPattern",
    "assign": "topics",
    "filter": "tag",
    "kafka.group.id": "group",
    "kafka.auto.offset.reset": "startingOffsets",
    "kafka.isolation.level": "leave it out: no message of an open transaction is read",
    "groupid": "group",
    "groupidprefix": "group",
    "startingoffsetsbytimestamp": f"use startingOffsets with {_TIMES}",
    "startingtimestamp": f"use startingOffsets with {_TIMES}",
    "endingoffsetsbytimestamp": f"use endingOffsets with {_TIMES}",
    "endingtimestamp": f"use endingOffsets with {_TIMES}",
    "includeheaders": "includeProperties",
    "path": "topic",
}


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """How driver and tasks reach the broker: it travels with tasks, never with an offset. The secret is not shown."""

    endpoint: str
    tls: bool = False
    tls_ca: str = ""
    access_key: str = ""
    secret: str = field(default="", repr=False)
    client_cert: str = ""
    client_key: str = ""


@dataclass(frozen=True, slots=True)
class Topics:
    """Which topics to read: names, or a pattern of names."""

    names: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Connecting:
    """The options of `CONNECTION`, typed."""

    endpoint: str
    tls: bool = False
    tls_ca: str = ""
    access_key: str = ""
    secret: str = field(default="", repr=False)
    client_cert: str = ""
    client_key: str = ""

    @property
    def broker(self) -> BrokerOptions:
        """How to reach the broker."""
        return BrokerOptions(**{each.name: getattr(self, each.name) for each in fields(BrokerOptions)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Connecting):
    """The options that both modes of reading have, typed: times in seconds, sizes in bytes.

    The fields that have a default here may be unset, or belong to one kind of read only. The defaults that users see
    are those of the tables.
    """

    mode: str
    min_partitions: int
    max_records_per_partition: int
    max_partitions: int
    fail_on_data_loss: bool
    include_properties: bool
    include_keys: bool
    decode: bool
    include_dead_letter: bool
    broker_unavailable_timeout: float
    topic: str = ""
    topics: tuple[str, ...] = ()
    topic_pattern: re.Pattern[str] | None = None
    tag: str | None = None
    sql: str | None = None
    group: str = ""
    max_rows_per_trigger: int = 0
    max_bytes_per_trigger: int = 0
    min_rows_per_trigger: int = 0
    max_trigger_delay: float = 0.0
    long_poll_timeout: float = 0.0

    @property
    def wanted(self) -> Topics:
        """The topics to read; exactly one of the three options names them."""
        return Topics((self.topic,) if self.topic else self.topics, self.topic_pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Reading):
    """The options of one query of `mode=lease`. `OPTIONS` tells what each does."""

    starting_offsets: Start
    invisible_time: float
    fail_on_lease_loss: bool
    exclusive_owner: bool
    drain_plan: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "Options":
        """Reads the options of a query; names in any case. Raises OptionError, for all faults of the names at once."""
        values = parse_values(OPTIONS, given, ELSEWHERE)
        check_partitions(values)
        check_topics(values)
        return cls(**values)


def check_partitions(values: Mapping[str, Any]) -> None:
    """Raises OptionError when there are to be more partitions at least than at most."""
    if values["min_partitions"] > values["max_partitions"]:
        raise OptionError(
            f"popmq: minPartitions = {values['min_partitions']} is more than maxPartitions = {values['max_partitions']}"
        )


def check_topics(values: Mapping[str, Any]) -> None:
    """Raises OptionError when not exactly one option names the topics, or when there are two filters."""
    if sum(bool(values.get(name)) for name in ("topic", "topics", "topic_pattern")) != 1:
        raise OptionError("popmq: name the topics to read with one of the options topic, topics and topicPattern")
    if values.get("tag") is not None and values.get("sql") is not None:
        raise OptionError("popmq: tag and sql are both given; filter by one of them")


def parse_values(table: Sequence[Option], given: Mapping[str, str], elsewhere: Mapping[str, str]) -> dict[str, Any]:
    """The values of a table's options by field; names in any case. Raises OptionError, for all faults of the names.

    `elsewhere`: option names of other sources, and their names here.
    """
    texts = {name.lower(): value for name, value in given.items()}
    _refuse_unknown(table, texts, elsewhere)
    values = {option.field: _value(option, texts) for option in table if _is_wanted(option, texts)}
    if ("client_cert" in values) != ("client_key" in values):
        missing = "clientKey" if "client_cert" in values else "clientCert"
        raise OptionError(f"popmq: {missing} is missing: clientCert and clientKey are given together, or neither")
    return values


def _is_wanted(option: Option, texts: Mapping[str, str]) -> bool:
    named = not texts.keys().isdisjoint((option.name.lower(), option.alias.lower()))
    return named or option.default != "" or bool(_from_environment(option))


def _value(option: Option, texts: Mapping[str, str]) -> Any:
    given = [name for name in (option.name, option.alias) if name and name.lower() in texts]
    if len(given) > 1:
        raise OptionError(f"popmq: {option.alias} is another name of {option.name}, and both are given: leave one out")
    variable = "" if given else _from_environment(option)
    text = texts[given[0].lower()] if given else variable or option.default
    if text is None:
        raise OptionError(f"popmq: the option {option.name} is missing: {option.text}")
    try:
        return option.parse(text)
    except ValueError as expected:
        name = f"POPMQ_{option.field.upper()}" if variable else f"option {option.name}"
        raise OptionError(f"popmq: {name} = {text!r}; expected {expected}") from None


def _from_environment(option: Option) -> str:
    """What the option's variable says, as a client of the SDK reads it; "" without one."""
    if not option.variable:
        return ""
    import popmq  # late: Spark imports this module in Python processes of queries that use no broker, too
    from popmq.config import switch, variable

    text = variable(option.field)
    if option.parse is not _flag or not text:
        return text
    try:
        return str(switch(option.field)).lower()
    except popmq.errors.InvalidField as error:
        raise OptionError(f"popmq: {error}") from None


def _refuse_unknown(table: Sequence[Option], texts: Mapping[str, str], elsewhere: Mapping[str, str]) -> None:
    names = {name.lower(): name for option in table for name in (option.name, option.alias) if name}
    wrong = []
    for name in sorted(set(texts) - set(names)):
        near = [names[key] for key in difflib.get_close_matches(name, names, n=1, cutoff=0.7)]
        kafkas = "leave it out: it is of Kafka's client" if name.startswith("kafka.") else ""
        meant = elsewhere.get(name) or kafkas or (near[0] if near else "")
        hint = meant if " " in meant else f"did you mean {meant}?"
        wrong.append(f"{name!r}" + (f" ({hint})" if meant else ""))
    if wrong:
        known = ", ".join(option.name for option in table if option.text)
        raise OptionError(f"popmq: unknown option {', '.join(wrong)}; the options are {known}")
