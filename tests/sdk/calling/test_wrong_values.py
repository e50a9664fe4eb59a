"""What the SDK refuses before it asks the broker: each error names the parameter."""

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import popmq
from popmq import errors
from tests.sdk.conftest import GROUP, TOPIC

#: A call, the error, and words of its text.
Case = tuple[Callable[[Any], Any], type[Exception], str]
TOMORROW = datetime.now(UTC) + timedelta(days=1)

LETTERS: dict[str, Case] = {
    "lite topics of a pop": (
        lambda client: client.pop(TOPIC, GROUP, lite_topics="alice"),
        TypeError,
        r"lite_topics is 'alice': give a list of texts, such as \['alice'\]",
    ),
    "lite topics of a consumer": (
        lambda client: client.consume(TOPIC, GROUP, lite_topics="alice"),
        TypeError,
        "lite_topics is 'alice'",
    ),
    "more keys": (
        lambda client: client.send(TOPIC, popmq.Message("x", more_keys="abc")),
        TypeError,
        "more_keys is 'abc'",
    ),
    "message ids": (
        lambda client: client.dead_letters.redrive(GROUP, message_ids="abc"),
        TypeError,
        "message_ids is 'abc'",
    ),
}

ZEROS: dict[str, Case] = {
    "attempts": (
        lambda client: client.groups.create("g", max_attempts=0),
        errors.InvalidField,
        "max_attempts is 0",
    ),
    "changed attempts": (
        lambda client: client.groups.update(GROUP, max_attempts=0),
        errors.InvalidField,
        "max_attempts is 0",
    ),
    "the lease of a group": (
        lambda client: client.groups.create("g", invisible="0s"),
        errors.InvalidField,
        "invisible is 0",
    ),
    "messages in flight": (
        lambda client: client.groups.create("g", in_flight_max=0),
        errors.InvalidField,
        "in_flight_max is 0",
    ),
    "messages of a pop": (
        lambda client: client.pop(TOPIC, GROUP, max_messages=0),
        errors.InvalidField,
        "max_messages is 0",
    ),
    "the lease of a pop": (lambda client: client.pop(TOPIC, GROUP, invisible=0), errors.InvalidField, "invisible is 0"),
    "messages of a consumer": (
        lambda client: client.consume(TOPIC, GROUP, max_messages=0),
        errors.InvalidField,
        "max_messages is 0",
    ),
    "messages of a browse": (
        lambda client: client.messages.browse(TOPIC, max_messages=0),
        errors.InvalidField,
        "max_messages is 0",
    ),
    "the age of messages": (
        lambda client: client.topics.create("t", retention=popmq.Retention(keep=0)),
        errors.InvalidField,
        "keep is 0",
    ),
    "lite topics": (
        lambda client: client.topics.create("t", type="LITE", lite=popmq.LiteTopics(topics_max=0)),
        errors.InvalidField,
        "topics_max is 0",
    ),
    "an idle time below 0": (
        lambda client: client.consume(TOPIC, GROUP, until_idle=-1),
        errors.InvalidField,
        "until_idle is -1",
    ),
    "messages of a batch below 0": (
        lambda client: client.consume(TOPIC, GROUP, max_messages=-1),
        errors.InvalidField,
        "max_messages is -1",
    ),
    "messages in hand below 0": (
        lambda client: client.consume(TOPIC, GROUP, max_in_hand=-1),
        errors.InvalidField,
        "max_in_hand is -1",
    ),
    "more messages than a pop takes": (
        lambda client: client.consume(TOPIC, GROUP, max_messages=4097),
        errors.InvalidField,
        "max_messages is 4097: a request takes at most 4096",
    ),
    "more messages than a pull takes": (
        lambda client: client.pull_consume(TOPIC, GROUP, max_messages=4097),
        errors.InvalidField,
        "max_messages is 4097: a request takes at most 4096",
    ),
    "an idle time of a pull below 0": (
        lambda client: client.pull_consume(TOPIC, GROUP, until_idle=-1),
        errors.InvalidField,
        "until_idle is -1",
    ),
}

TYPES: dict[str, Case] = {
    "a key": (
        lambda client: client.send(TOPIC, ["x", popmq.Message("x", key=5)]),  # type: ignore[arg-type]
        TypeError,
        r"messages\[1\]\.key is 5, of type int: give a str",
    ),
    "one of more keys": (
        lambda client: client.send(TOPIC, popmq.Message("x", more_keys=["a", 5])),  # type: ignore[list-item]
        TypeError,
        r"messages\[0\]\.more_keys\[1\] is 5",
    ),
    "more keys that are no list": (
        lambda client: client.send(TOPIC, popmq.Message("x", more_keys=5)),  # type: ignore[arg-type]
        TypeError,
        "more_keys is 5: give a list of texts",
    ),
    "a trace context": (
        lambda client: client.send(TOPIC, popmq.Message("x", trace_context="00-1-2-01")),  # type: ignore[arg-type]
        TypeError,
        "trace_context is '00-1-2-01': give a popmq.TraceContext",
    ),
    "a part of a trace context": (
        lambda client: client.send(TOPIC, popmq.Message("x", trace_context=popmq.TraceContext(5))),  # type: ignore[arg-type]
        TypeError,
        r"messages\[0\]\.trace_context\.traceparent is 5, of type int: give a str",
    ),
    "a tag": (
        lambda client: client.send(TOPIC, popmq.Message("x", tag=5)),  # type: ignore[arg-type]
        TypeError,
        r"messages\[0\]\.tag is 5, of type int: give a str",
    ),
    "a property": (
        lambda client: client.send(TOPIC, popmq.Message("x", properties={"a": 1})),  # type: ignore[dict-item]
        TypeError,
        r"messages\[0\]\.properties\['a'\] is 1, of type int: give a str",
    ),
    "properties": (
        lambda client: client.send(TOPIC, popmq.Message("x", properties=5)),  # type: ignore[arg-type]
        TypeError,
        r"messages\[0\]\.properties is 5, of type int: give a dict of str to str",
    ),
    "a priority": (
        lambda client: client.send(TOPIC, popmq.Message("x", priority=10**20)),
        ValueError,
        r"messages\[0\]\.priority is 1000",
    ),
    "a topic": (lambda client: client.send(5, "x"), TypeError, "the topic is 5, of type int"),
    "a pop's topic": (lambda client: client.pop(5, GROUP), TypeError, "topic is 5, of type int: give a str"),
    "queues as a text": (
        lambda client: client.topics.create("t", queues="4"),
        TypeError,
        "queues is '4', of type str: give an int",
    ),
    "many queues": (
        lambda client: client.topics.create("t", queues=10**10),
        errors.InvalidField,
        "at least one queue and at most 1024, not 10000000000",
    ),
    "a retention": (
        lambda client: client.topics.create("t", retention=5),
        TypeError,
        r"retention is 5: give a popmq\.Retention",
    ),
    "a quota": (lambda client: client.topics.create("t", quota=5), TypeError, r"quota is 5: give a popmq\.Quota"),
    "attempts": (
        lambda client: client.groups.create("g", max_attempts="3"),
        TypeError,
        r"group\.max_attempts is '3', of type str: give an int",
    ),
    "a tag of a pop": (lambda client: client.pop(TOPIC, GROUP, tag=5), TypeError, "tag is 5, of type int: give a str"),
    "a filter of a consumer": (
        lambda client: client.consume(TOPIC, GROUP, sql=5),
        TypeError,
        "sql is 5, of type int: give a str",
    ),
    "a reason": (
        lambda client: client.release("handle", group=GROUP, reason=5),
        TypeError,
        "reason is 5, of type int: give a str",
    ),
    "no reason": (lambda client: client.reject("handle", None, group=GROUP), TypeError, "reason is None"),
    "fair keys": (
        lambda client: client.groups.create("g", fair_keys="tenant"),
        TypeError,
        r"fair_keys is 'tenant': give a popmq\.FairKeys",
    ),
    "changed fair keys": (lambda client: client.groups.update(GROUP, fair_keys=True), TypeError, "fair_keys is True"),
    "a large priority": (
        lambda client: client.send(TOPIC, popmq.Message("x", priority=10**12)),
        ValueError,
        r"messages\[0\]\.priority is 1000000000000: give an int from -2147483648 to 2147483647",
    ),
    "a queue": (
        lambda client: client.pop(TOPIC, GROUP, queues=[-1]),
        ValueError,
        r"queues is \[-1\]: give a list, each an int from 0 to 4294967295",
    ),
    "a rate": (
        lambda client: client.topics.create("t", quota=popmq.Quota(-1)),
        ValueError,
        r"quota\.send_messages_per_s is -1: give an int from 0 to",
    ),
    "a list of properties": (
        lambda client: client.send(TOPIC, popmq.Message("x", properties=["a"])),  # type: ignore[arg-type]
        TypeError,
        r"messages\[0\]\.properties is \['a'\]: give a dict of str to str",
    ),
    "offsets": (
        lambda client: client.offsets.reset(TOPIC, GROUP, {"0": 1}),
        TypeError,
        "offsets is {'0': 1}, of type dict: give a dict of int to int",
    ),
    "a backup": (lambda client: client.broker.backup("/path"), TypeError, "write is '/path': give a function"),
    "a zone": (
        lambda client: client.schedules.create("s", "@daily", TOPIC, "x", tz=5),
        TypeError,
        r"schedule\.time_zone is 5",
    ),
    "nothing to ack": (lambda client: client.ack(None), TypeError, r"the delivery is None: give a popmq\.Delivery"),
    "nothing among those to ack": (
        lambda client: client.ack(["a", None], group=GROUP),
        TypeError,
        r"deliveries\[1\] is None",
    ),
    "a type of topic": (
        lambda client: client.topics.create("t", type="foo"),
        errors.InvalidField,
        "'foo' is not one of NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY, LITE$",
    ),
    "what was missed": (
        lambda client: client.schedules.create("s", "@daily", TOPIC, "x", missed="foo"),
        errors.InvalidField,
        "'foo' is not one of SKIP, ONCE, ALL$",
    ),
}

PLACES: dict[str, Case] = {
    "a word for the start of a group": (
        lambda client: client.groups.create("g", start="begin"),
        errors.InvalidField,
        """'begin' is no place to start \\(give "earliest", "latest" or a datetime""",
    ),
    "a start of a group in the future": (
        lambda client: client.groups.create("g", start=TOMORROW),
        errors.InvalidField,
        "is in the future: what is sent until then would be skipped",
    ),
    "a start of a changed group in the future": (
        lambda client: client.groups.update(GROUP, start=TOMORROW),
        errors.InvalidField,
        "is in the future",
    ),
    "a start of a group that pulls in the future": (
        lambda client: client.groups.set_consume_mode(TOPIC, GROUP, "PULL", start=TOMORROW),
        errors.InvalidField,
        "is in the future",
    ),
    "a time in the future to move to": (
        lambda client: client.offsets.reset(TOPIC, GROUP, TOMORROW),
        errors.InvalidField,
        "is in the future",
    ),
    "a number to move to": (
        lambda client: client.offsets.reset(TOPIC, GROUP, 5),
        errors.InvalidField,
        "5 is no place to move to .*{queue: offset}",
    ),
    "a word to move to": (
        lambda client: client.offsets.reset(TOPIC, GROUP, "TIMESTAMP"),
        errors.InvalidField,
        """'TIMESTAMP' is no place .*"earliest", "latest" or a datetime""",
    ),
}

CASES = {
    f"{kind}: {name}": case
    for kind, cases in (("letters", LETTERS), ("zero", ZEROS), ("type", TYPES), ("place", PLACES))
    for name, case in cases.items()
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_a_wrong_value_is_refused_with_the_name_of_its_parameter(client: Any, case: Case) -> None:
    call, kind, text = case
    with pytest.raises(kind, match=text):
        await call(client)


async def test_a_fifo_topic_says_that_the_message_group_is_missing(client: Any) -> None:
    await client.topics.create("ledger", type="FIFO")
    text = "topic 'ledger' has type FIFO: message_group is missing \\(set message_group, or send to a topic"
    with pytest.raises(errors.InvalidField, match=text):
        await client.send("ledger", "x")
    with pytest.raises(errors.InvalidField, match=text):
        await client.schedules.create("s", "@daily", "ledger", "x")


async def test_a_backoff_of_one_delay_needs_no_list(client: Any) -> None:
    assert list((await client.groups.create("brief", backoff="10s")).backoff) == [10.0]


async def test_a_schedule_takes_a_zone_of_zoneinfo(client: Any) -> None:
    made = await client.schedules.create("daily", "@daily", TOPIC, "x", tz=ZoneInfo("Europe/Berlin"))
    assert made.tz == "Europe/Berlin"


@pytest.mark.parametrize(
    ("endpoint", "transport"),
    [
        *itertools.product(["localhost", "127.0.0.1"], ["python", "grpcio"]),
        ("http://localhost:8081", "python"),  # grpcio knows schemes of its own
        ("localhost:99999", "python"),
    ],
)
def test_an_endpoint_that_is_not_a_host_and_a_port_is_refused(endpoint: str, transport: Any) -> None:
    with pytest.raises(errors.InvalidField, match=f"'{endpoint}' is not host:port") as refused:
        popmq.Client(endpoint, transport=transport)
    assert "no http://; the port is 8081, or 8082 with TLS" in refused.value.action


@pytest.mark.parametrize("made", [popmq.Client, popmq.AsyncClient, popmq.Worker])
def test_an_endpoint_that_is_no_text_is_refused(made: Any) -> None:
    with pytest.raises(TypeError, match="the endpoint is 8081, of type int: give a str, host:port"):
        made(8081)


@pytest.mark.parametrize("made", [popmq.Client, popmq.AsyncClient])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeouts": {"send": 5}}, r"timeouts is {'send': 5}: give a popmq\.Timeouts"),
        ({"retry": 5}, r"retry is 5: give a popmq\.Retry"),
        ({"client_id": 5}, "client_id is 5, of type int: give a str"),
        ({"tls": "no"}, "tls is 'no', of type str: give True or False"),
        ({"access_key": "me", "secret": 5}, "secret is 5, of type int"),
        ({"access_key": 5, "secret": "x"}, "access_key is 5, of type int"),
    ],
)
def test_an_option_of_a_client_is_refused_where_it_is_given(made: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        made("127.0.0.1:8081", **options)


@pytest.mark.parametrize("kind", [popmq.RetryLater, popmq.Snooze])
def test_a_reason_that_is_no_text_is_refused_where_it_is_raised(kind: Any) -> None:
    with pytest.raises(TypeError, match="reason is 5, of type int: give a str"):
        raise kind(1, reason=5)


async def test_a_delivery_is_settled_by_its_block_when_a_wrong_outcome_was_refused_in_it(
    client: Any, guard: Any
) -> None:
    await client.send(TOPIC, "x")
    (delivery,) = await client.pop(TOPIC, GROUP)
    async with guard(delivery):
        with pytest.raises(TypeError, match="reason is 5"):
            delivery.release(reason=5)
        with pytest.raises(TypeError, match="reason is None"):
            delivery.reject(None)
    (row,) = (await client.broker.stats(TOPIC)).groups
    assert (row.acked, row.in_flight) == (1, 0)
