"""Durations are taken in the same way wherever one is given; a call has a `timeout` of its own."""

import inspect
import re
import time
import typing
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy
import pytest

import popmq
from popmq import errors
from popmq.duration import Duration, seconds_of
from popmq.testing import Broker
from tests.sdk.calling.lossy import HANG, LossyWire
from tests.sdk.conftest import GROUP, QUICK, TOPIC, Connect
from tests.sdk.face import calls_of
from tests.sdk.threads import InThreads

FORMS: dict[str, Callable[[float], Any]] = {
    "text": lambda seconds: f"{seconds:g}s",
    "timedelta": lambda seconds: timedelta(seconds=seconds),
    "float": lambda seconds: seconds,
    "int": int,
    "numpy.float32": numpy.float32,
    "numpy.int64": numpy.int64,
    "numpy.timedelta64": lambda seconds: numpy.timedelta64(int(seconds * 1000), "ms"),
}
#: Methods that call nobody, or whose length nobody can know before.
NO_TIMEOUT = {
    "broadcast_consume",
    "broker.backup",
    "client_stats",
    "close",
    "consume",
    "pull_consume",
    "transaction",
    "transactions.on_check",
}
#: The options of the loops, which their signatures name together.
LOOPS = (popmq.ConsumeOptions, popmq.PullConsumeOptions, popmq.BroadcastConsumeOptions)
#: Names of parameters that are lengths of time.
NAMES = {"delay", "invisible", "lease", "subscription_expiry", "timeout", "unique_ids", "until_idle", "wait"}
SETTINGS: dict[str, Callable[[Any], float]] = {
    "Timeouts.send": lambda given: popmq.Timeouts(send=given).send,
    "Timeouts.pop": lambda given: popmq.Timeouts(pop=given).pop,
    "Timeouts.settle": lambda given: popmq.Timeouts(settle=given).settle,
    "Timeouts.admin": lambda given: popmq.Timeouts(admin=given).admin,
    "Timeouts.all": lambda given: popmq.Timeouts.all(given).pop,
    "Retry.first": lambda given: popmq.Retry(first=given).first,
    "Retry.longest": lambda given: popmq.Retry(longest=given).longest,
    "Retry.reach": lambda given: popmq.Retry(reach=given).reach,
    "FlowControl.pause": lambda given: popmq.FlowControl(pause=given).pause,
    "Retention.keep": lambda given: popmq.Retention(keep=given).keep,
    "LiteTopics.ttl": lambda given: popmq.LiteTopics(ttl=given).ttl,
}


def methods() -> dict[str, inspect.Signature]:
    return {name: inspect.signature(each) for name, each in calls_of(popmq.AsyncClient).items()}


def test_each_method_that_asks_the_broker_takes_a_timeout() -> None:
    lacking = {name for name, each in methods().items() if "timeout" not in each.parameters}
    assert lacking == NO_TIMEOUT


def test_each_length_of_time_of_a_method_is_a_duration() -> None:
    numbers = [
        f"{name}({each.name}: {each.annotation})"
        for name, signature in methods().items()
        for each in signature.parameters.values()
        if each.name in NAMES and not re.match("Duration|'?Duration", str(each.annotation))
    ]
    lengths = {(name, kind) for each in LOOPS for name, kind in typing.get_type_hints(each).items() if name in NAMES}
    numbers += [name for name, kind in lengths if not {*typing.get_args(Duration)} <= {*typing.get_args(kind)}]
    assert len(lengths) == 3
    assert numbers == []
    assert typing.get_args(Duration) == (float, timedelta, str)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_take_any_duration(setting: str, form: str) -> None:
    assert SETTINGS[setting](FORMS[form](60.0)) == 60.0
    assert isinstance(SETTINGS[setting](FORMS[form](60.0)), float)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("wrong", ["soon", True, None, numpy.array([1.0, 2.0]), numpy.timedelta64("NaT"), float("nan")])
def test_settings_name_the_field_that_is_no_duration(setting: str, wrong: Any) -> None:
    with pytest.raises(errors.InvalidField, match="is not a duration") as raised:
        SETTINGS[setting](wrong)
    assert raised.value.field in (setting.partition(".")[2], "send")


def test_a_timedelta_of_numpy_counts_by_its_unit() -> None:
    assert seconds_of(numpy.timedelta64(250, "ms")) == 0.25  # type: ignore[arg-type]  # numpy is not in the type
    assert seconds_of(numpy.timedelta64(2, "h")) == 7200.0  # type: ignore[arg-type]


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "pop wait": lambda client, given: client.pop(TOPIC, GROUP, wait=given),
    "pop invisible": lambda client, given: client.pop(TOPIC, GROUP, invisible=given),
    "pull wait": lambda client, given: client.pull(TOPIC, "", 0, 0, wait=given),
    "wait_available wait": lambda client, given: client.wait_available(TOPIC, GROUP, 0, wait=given),
    "owners.attach lease": lambda client, given: client.owners.attach(GROUP, "o", lease=given),
    "topics.create unique_ids": lambda client, given: client.topics.create("u", unique_ids=given),
    "topics.update unique_ids": lambda client, given: client.topics.update(TOPIC, unique_ids=given),
    "groups.create subscription_expiry": lambda client, given: client.groups.create(
        "h", subscription_expiry=given * 3600 if not isinstance(given, str) else "1h"
    ),
    "groups.create backoff": lambda client, given: client.groups.create("g", backoff=[given, given]),
    "a call's timeout": lambda client, given: client.topics.list(timeout=given),
}


@pytest.mark.parametrize("form", FORMS)
async def test_calls_take_any_duration(client: Any, form: str) -> None:
    for name, call in CALLS.items():
        if name == "pop wait":
            await client.send(TOPIC, ["x"] * 8)  # so that no call waits
        await call(client, FORMS[form](1.0))


@pytest.mark.capability("ttl")
async def test_less_than_a_millisecond_is_not_nothing(client: Any) -> None:
    await client.send(TOPIC, popmq.Message("x", ttl=0.0004))
    (delivery,) = (await client.messages.browse(TOPIC)).deliveries
    assert delivery.ttl == 0.001


async def test_one_call_gives_up_after_its_own_timeout(connect: Connect) -> None:
    with LossyWire("127.0.0.1:1") as nowhere:
        gone = nowhere.endpoint
    client = connect(gone, retry=QUICK)
    begun = time.monotonic()
    for call in (
        client.send(TOPIC, "x", timeout="50ms"),
        client.pop(TOPIC, GROUP, timeout=0.05),
        client.ack("handle", group=GROUP, timeout=timedelta(seconds=0.05)),
        client.topics.list(timeout=0.05),
        client.offsets.query(TOPIC, timeout=0.05),
        client.request(TOPIC, "x", timeout=0.1),
    ):
        with pytest.raises((errors.Unavailable, errors.DeadlineExceeded)):
            await call
    assert time.monotonic() - begun < 5.0  # the timeouts of the client are 10 and 30 s


async def test_a_timeout_ends_a_call_that_is_not_answered(connect: Connect, popmq_broker: Broker, client: Any) -> None:
    with LossyWire(popmq_broker.endpoint) as wire:
        impatient = connect(wire.endpoint)
        wire.plan["Send"] = [HANG]
        with pytest.raises(errors.DeadlineExceeded):
            await impatient.send(TOPIC, "x", timeout=0.05)


@pytest.mark.parametrize("wrong", [0, -1, "0s", "soon", True])
async def test_a_timeout_that_is_no_time_is_refused(client: Any, wrong: Any) -> None:
    for call in (client.send(TOPIC, "x", timeout=wrong), client.topics.list(timeout=wrong)):
        with pytest.raises(errors.InvalidField) as raised:
            await call
        assert raised.value.field == "timeout"
    assert sum(queue.max_offset for queue in await client.offsets.query(TOPIC)) == 0  # it was not sent


async def test_what_a_client_shows_of_itself_has_its_endpoint_and_no_secret(connect: Connect) -> None:
    client = connect("broker.example:8081", client_id="me", access_key="reader", secret="hush-hush")
    shown = repr(client._client if isinstance(client, InThreads) else client)
    assert "broker.example:8081" in shown
    assert "me" in shown
    assert "hush" not in shown


async def test_the_first_datetime_of_python_is_a_time_that_has_passed(connect: Connect) -> None:
    client = connect()
    await client.topics.create("later", type="DELAY")
    for first in (datetime.min, datetime.min.replace(tzinfo=UTC), datetime(1969, 1, 1, tzinfo=UTC)):
        receipt = await client.send("later", popmq.Message("x", deliver_at=first))
        assert receipt.offset >= 0  # stored at once
