"""Options arrive as strings with lower-case names; what is wrong with them is said in one sentence."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from popmq_spark.offsets.offsets_options import OffsetsOptions
from popmq_spark.options import OPTIONS, BrokerOptions, Connecting, OptionError, Options
from popmq_spark.writing.write_options import WriteOptions

REQUIRED = {"endpoint": "127.0.0.1:8081", "topic": "orders", "group": "spark"}


def parse(**given: str) -> Options:
    return Options.parse(REQUIRED | given)


def test_three_options_are_enough_and_the_others_have_the_documented_defaults() -> None:
    options = parse()
    assert (options.endpoint, options.topic, options.group) == ("127.0.0.1:8081", "orders", "spark")
    assert (options.starting_offsets, options.max_rows_per_trigger, options.invisible_time) == ("earliest", 100_000, 60)
    assert (options.max_bytes_per_trigger, options.long_poll_timeout) == (128 << 20, 0.5)
    assert (options.fail_on_data_loss, options.fail_on_lease_loss, options.include_properties) == (True, False, False)


def test_names_count_in_any_case() -> None:
    assert parse(maxrowspertrigger="7").max_rows_per_trigger == 7
    assert parse(MAXROWSPERTRIGGER="7").max_rows_per_trigger == 7


def test_kafkas_name_for_the_row_limit_is_understood() -> None:
    assert parse(maxOffsetsPerTrigger="7").max_rows_per_trigger == 7


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("startingOffsets", "LATEST", "latest"),
        ("startingOffsets", "2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("startingOffsets", "1700000000000", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        ("maxTriggerDelay", "15m", 900.0),
        ("longPollTimeout", "0.5s", 0.5),
        ("longPollTimeout", "250 ms", 0.25),
        ("invisibleTime", "2h", 7200.0),
        ("maxBytesPerTrigger", "64m", 64 << 20),
        ("maxBytesPerTrigger", "2 GiB", 2 << 30),
        ("maxBytesPerTrigger", "5000000", 5_000_000),
        ("failOnLeaseLoss", "True", True),
    ],
)
def test_a_value_is_read_in_its_unit(name: str, text: str, value: Any) -> None:
    fields = {option.name: option.field for option in OPTIONS}
    assert getattr(parse(**{name: text}), fields[name]) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("endpoint", " "),
        ("startingOffsets", "yesterday"),
        ("startingOffsets", "2026-01-31T12:00:00"),  # in which zone?
        ("maxRowsPerTrigger", "many"),
        ("maxRowsPerTrigger", "0"),
        ("maxRowsPerTrigger", "1000001"),
        ("maxRowsPerTrigger", "-5"),
        ("maxRowsPerTrigger", "1e5"),
        ("invisibleTime", "60"),  # of what?
        ("invisibleTime", "999ms"),
        ("invisibleTime", "13h"),
        ("maxBytesPerTrigger", "12 parsecs"),
        ("maxPartitions", "1025"),
        ("failOnDataLoss", "yes"),
        ("endingOffsets", "latest"),  # with the other mode
        ("mode", "drain"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_with_what_could_stand_there(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"option {name} = '{text}'; expected".replace("|", r"\|")):
        parse(**{name: text})


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("startingOffsets", "mode=offsets, or move the group by `popmq offsets reset"),
        ("endingOffsets", "reads whatever its group is given: use mode=offsets"),
    ],
)
def test_offsets_with_a_lease_are_refused_with_the_way_to_have_them(name: str, way: str) -> None:
    with pytest.raises(OptionError, match=way):
        parse(**{name: '{"orders": {"0": 4711}}'})


Parse = Callable[[dict[str, str]], Connecting]
EVERY_PARSER = pytest.mark.parametrize(
    "parser",
    [
        lambda given: Options.parse(given | {"group": "spark"}),
        OffsetsOptions.stream,
        OffsetsOptions.batch,
        lambda given: WriteOptions.parse(given, streaming=True),
    ],
    ids=["lease", "stream by offsets", "batch read", "sink"],
)


@EVERY_PARSER
def test_what_reaches_the_broker_may_come_from_the_environment(parser: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPMQ_ENDPOINT", "\ufeff queue.example:8082\n")
    monkeypatch.setenv("POPMQ_TLS", "yes")
    monkeypatch.setenv("POPMQ_TLS_CA", "/etc/ca.pem")
    monkeypatch.setenv("POPMQ_CLIENT_CERT", "/etc/cert.pem")
    monkeypatch.setenv("POPMQ_CLIENT_KEY", "/etc/key.pem")
    assert parser({"topic": "orders"}).broker == BrokerOptions(
        endpoint="queue.example:8082",
        tls=True,
        tls_ca="/etc/ca.pem",
        client_cert="/etc/cert.pem",
        client_key="/etc/key.pem",
    )


@EVERY_PARSER
def test_an_option_counts_before_its_variable(parser: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPMQ_ENDPOINT", "queue.example:8082")
    monkeypatch.setenv("POPMQ_TLS", "1")
    assert parser({"topic": "orders", "endpoint": "other:1", "tls": "false"}).broker == BrokerOptions("other:1")


@EVERY_PARSER
def test_the_secret_of_the_environment_does_not_travel_with_the_options(
    parser: Parse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPMQ_ACCESS_KEY", "billing")
    monkeypatch.setenv("POPMQ_SECRET", "hidden")
    assert parser({"topic": "orders", "endpoint": "other:1"}).broker == BrokerOptions("other:1")


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("POPMQ_ENDPOINT", "a:1,b:2", "POPMQ_ENDPOINT = 'a:1,b:2'; expected one host:port"),
        ("POPMQ_TLS", "maybe", "POPMQ_TLS is 'maybe': neither true nor false"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(
    variable: str, text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPMQ_ENDPOINT", "queue.example:8082")
    monkeypatch.setenv(variable, text)
    with pytest.raises(OptionError, match=said):
        Options.parse({"topic": "orders", "group": "spark"})


@pytest.mark.parametrize("missing", ["endpoint", "group"])
def test_a_missing_option_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POPMQ_ENDPOINT", raising=False)
    with pytest.raises(OptionError, match=f"the option {missing} is missing"):
        Options.parse({name: value for name, value in REQUIRED.items() if name != missing})


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("maxRowPerTrigger", r"did you mean maxRowsPerTrigger\?\)"),
        ("startingoffset", r"did you mean startingOffsets\?\)"),
        ("kafka.bootstrap.servers", r"did you mean endpoint\?\)"),
        ("includeHeaders", r"did you mean includeProperties\?\)"),
        ("startingOffsetsByTimestamp", "use startingOffsets with a time"),
        ("kafka.sasl.jaas.config", "use accessKey and secret"),
        ("kafka.session.timeout.ms", "leave it out: it is of Kafka's client"),
    ],
)
def test_an_unknown_name_or_one_of_kafkas_source_is_answered_with_what_to_write(name: str, instead: str) -> None:
    with pytest.raises(OptionError, match=rf"unknown option '{name.lower()}' \({instead}"):
        parse(**{name: "1"})


def test_a_list_of_endpoints_is_refused_with_the_reason() -> None:
    with pytest.raises(OptionError, match="expected one host:port: a broker has one address"):
        parse(endpoint="one:8081,two:8081")


def test_all_unknown_names_are_reported_at_once() -> None:
    with pytest.raises(OptionError, match="'colour', 'shape'"):
        parse(colour="red", shape="round")


def test_partitions_at_least_cannot_exceed_partitions_at_most() -> None:
    with pytest.raises(OptionError, match="minPartitions = 5 is more than maxPartitions = 4"):
        parse(minPartitions="5", maxPartitions="4")


def test_topics_are_named_in_one_way_and_filtered_in_one_way() -> None:
    one = {name: value for name, value in REQUIRED.items() if name != "topic"}
    assert Options.parse(one | {"topics": "a, b"}).wanted.names == ("a", "b")
    assert Options.parse(one | {"subscribe": "a"}).wanted.names == ("a",)
    assert parse().wanted.names == ("orders",)
    pattern = Options.parse(one | {"topicPattern": "a.*"}).wanted.pattern
    assert pattern
    assert pattern.fullmatch("abc")
    for wrong in (one, REQUIRED | {"topics": "a"}, REQUIRED | {"topicPattern": "a"}):
        with pytest.raises(OptionError, match="with one of the options topic, topics and topicPattern"):
            Options.parse(wrong)
    with pytest.raises(OptionError, match="tag and sql are both given"):
        parse(tag="a", sql="b = 1")


def test_an_option_and_its_other_name_together_are_refused() -> None:
    with pytest.raises(OptionError, match="maxOffsetsPerTrigger is another name of maxRowsPerTrigger, and both"):
        parse(maxRowsPerTrigger="5", maxOffsetsPerTrigger="7")


def test_a_sink_accepts_the_options_that_spark_passes_to_every_sink() -> None:
    spark_s = {"checkpointLocation": "/somewhere", "queryName": "q", "path": "x"}
    assert WriteOptions.parse({"endpoint": "127.0.0.1:8081"} | spark_s, streaming=True).topic == ""
