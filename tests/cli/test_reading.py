"""How groups read: filters, offsets, modes, sessions, message groups; and what topics are set to take."""

import grpc
import pytest

import popmq
from popmq.testing import Broker
from tests.cli.conftest import Cli
from tests.wire.rocketmq.v2 import Obliging


@pytest.mark.slow
def test_a_topic_has_types_quotas_and_bounds(run: Cli, client: popmq.Client) -> None:
    settings = ["--type", "fifo", "--max-bytes", "10MiB", "--quota-send", "100", "--quota-message", "64KiB"]
    (made,) = run("topic", "create", "letters", *settings, "--unique-ids", "10m", "--json").objects
    assert (made["type"], made["unique_ids"], made["retention"]["max_bytes"]) == ("FIFO", 600.0, 10 << 20)
    assert (made["quota"]["send_messages_per_s"], made["quota"]["message_bytes"]) == (100, 65536)
    assert run("topic", "update", "letters", "--keep", "1h", "--quota-pop", "7").code == 0
    text = run("topic", "describe", "letters").out
    assert "retention   1h after all groups, at most 10.0 MiB" in text
    assert "quota       100 sent/s, 64.0 KiB a message, 7 popped/s a group" in text
    assert "unique ids  10m" in text


@pytest.mark.slow
def test_filters_are_set_by_topic_and_shown(run: Cli, client: popmq.Client) -> None:
    client.topics.create("parcels")
    assert run("group", "create", "eu", "--sql", "orders=region = 'eu'", "--filter", "parcels=a || b").code == 0
    (shown,) = run("group", "describe", "eu", "--json").objects
    assert [(each["topic"], each["tag"], each["sql"]) for each in shown["subscriptions"]] == [
        ("orders", "", "region = 'eu'"),
        ("parcels", "a || b", ""),
    ]
    assert "orders\tPOP\t0\tregion = 'eu'\n" in run("group", "describe", "eu").out
    client.send("orders", [popmq.Message(each, properties={"region": each}) for each in ("eu", "us")])
    assert run("pop", "orders", "eu", "--max", "9", "--ack").out == "eu\n"
    conflict = run("pop", "orders", "eu", "--sql", "TRUE")
    assert (conflict.code, "filter" in conflict.err) == (1, True)
    assert run("group", "update", "eu", "--filter", "orders=*").code == 0
    assert run("pop", "orders", "eu", "--sql", "FALSE", "--max", "9").code == 1


def test_a_filter_that_cannot_be_read_makes_no_group(run: Cli, client: popmq.Client) -> None:
    done = run("pop", "orders", "billing", "--sql", "region = AND")
    assert (done.code, "column 10" in done.err) == (1, True)


@pytest.mark.promise("statistics")
@pytest.mark.slow
def test_offsets_are_shown_moved_and_cloned(run: Cli, client: popmq.Client) -> None:
    client.groups.create("audit")
    client.send("orders", ["a", "b", "c"])
    client.ack(client.pop("orders", "billing", 2))
    lines = run("offsets", "show", "orders", "billing").out.splitlines()
    names = ["QUEUE", "FIRST", "NEXT", "COMMITTED", "LEFT", "BYTES", "ALL GROUPS", "LAST READ"]
    assert lines[0].split("\t") == names
    *numbers, size, least, read = lines[1].split("\t")
    assert (numbers, least) == (["0", "0", "3", "2", "1"], "2")
    assert size.endswith("B")
    assert read.startswith("20")
    assert lines[2].split("\t")[4:7] == ["0", "0 B", "0"]
    (first, _) = run("offsets", "show", "orders", "--at", "2020-01-01", "--json").objects
    assert (first["max_offset"], first["committed"], first["at_timestamp"]) == (3, -1, 0)
    assert run("offsets", "clone", "orders", "billing", "audit", "--yes").out == "QUEUE\tOFFSET\n0\t2\n1\t0\n"
    (moved,) = run("offsets", "reset", "orders", "billing", "--queue", "0=1", "--yes", "--json").objects
    assert moved["offsets"]["0"] == 1
    assert [delivery.text() for delivery in client.pop("orders", "billing")] == ["b", "c"]
    run("offsets", "reset", "orders", "billing", "--to", "earliest", "--yes")
    assert len(client.pop("orders", "billing")) == 3
    run("offsets", "reset", "orders", "billing", "--to", "latest", "--yes")
    assert client.pop("orders", "billing") == []


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("5", "5 is no place: write 5s for so many seconds ago, or a time"),
        ("-5", "write 5s"),
        ("tomorrow", "tomorrow is in the future: what is sent until then would be skipped"),
        ("+1h", "is in the future"),
        ("9999-01-01T00:00Z", "is in the future"),
    ],
)
def test_a_bare_number_and_a_time_in_the_future_are_no_places(
    run: Cli, client: popmq.Client, place: str, told: str
) -> None:
    client.send("orders", ["a", "b"])
    client.offsets.reset("orders", "billing", "earliest")
    for command in (
        ("offsets", "reset", "orders", "billing", "--yes", f"--to={place}"),
        ("mode", "orders", "audit", "pull", f"--start={place}"),
        ("group", "create", "audit", f"--start={place}"),
        ("group", "update", "billing", f"--start={place}"),
    ):
        refused = run(*command)
        assert (refused.code, told in refused.err) == (2, True), refused.err
    assert len(client.pop("orders", "billing")) == 2
    assert [each.name for each in client.groups.list()] == ["billing"]


@pytest.mark.parametrize(
    ("place", "named"),
    [
        (("--to", "2025-12-01T12:00:00Z"), "the messages stored since 2025-12-01T12:00:00Z"),
        (("--to", "earliest"), "the first message"),
        (("--to", "latest"), "the end, behind all messages"),
        (("--queue", "1=5", "--queue", "0=3"), "offset 3 of queue 0, offset 5 of queue 1"),
    ],
)
def test_the_question_of_a_reset_names_the_destination(
    run: Cli, client: popmq.Client, place: tuple[str, ...], named: str
) -> None:
    asked = run("offsets", "reset", "orders", "billing", *place)
    assert f"Move billing in orders to {named}, and drop its leases and retries there?" in asked.err


def test_a_start_of_a_group_is_shown_in_utc_with_its_suffix(run: Cli, client: popmq.Client) -> None:
    assert run("group", "create", "late", "--start", "2025-12-02T01:00+01:00").code == 0
    assert "2025-12-02T00:00:00Z" in run("group", "describe", "late").out.partition("created")[0]


def test_a_group_is_switched_between_pop_and_pull(run: Cli, client: popmq.Client) -> None:
    assert run("mode", "orders", "billing").out.splitlines()[1] == "orders\tPOP\t0\teverything"
    assert run("mode", "orders", "billing", "pull").err == "billing reads orders by PULL\n"
    assert run("mode", "orders", "billing", "--json").objects[0]["mode"] == "PULL"
    with pytest.raises(popmq.errors.WrongConsumeMode):
        client.pop("orders", "billing")
    assert run("mode", "orders", "billing", "pop", "--share-number", "2").code == 0
    assert client.pop("orders", "billing") == []


@pytest.mark.promise("statistics")
def test_sessions_show_consumers_and_transaction_checkers(run: Cli, client: popmq.Client) -> None:
    client.topics.create("payments", type="TRANSACTION")
    client.sessions.heartbeat("billing", ["orders"])
    client.transactions.on_check("payments", lambda check: None)
    while len(shown := run("sessions", "--json").objects) < 2:
        pass
    assert sorted((each["group"], each["topics"], each["stream"]) for each in shown) == [
        ("", ["payments"], True),
        ("billing", ["orders"], False),
    ]
    row = run("sessions", "billing").out.splitlines()[1].split("\t")
    assert row[:5] == [client.client_id, "billing", "orders", "", "0"]


@pytest.mark.promise("statistics")
def test_sessions_show_clients_that_only_pop_or_send(run: Cli, client: popmq.Client) -> None:
    client.send("orders", ["a", "b"])
    client.pop("orders", "billing", max_messages=1)
    rows = [line.split("\t")[:5] for line in run("sessions").out.splitlines()[1:]]
    assert rows == [
        [client.client_id, "", "orders", "SEND 1", "0"],
        [client.client_id, "billing", "orders", "POP 1", "1"],
    ]
    (popped,) = run("sessions", "billing", "--json").objects
    assert (popped["recent"], popped["pops"], popped["host"]) == (True, 1, "127.0.0.1")


@pytest.mark.slow
def test_an_official_client_is_asked_for_its_stacks_and_to_handle_a_message(
    run: Cli, client: popmq.Client, popmq_broker: Broker
) -> None:
    client.send("orders", "paid")
    with grpc.insecure_channel(popmq_broker.endpoint) as channel:
        obliging = Obliging(channel, "worker@1@0@x")
        assert run("client", "stack", "worker@1@0@x").out == "OK\nmain: waiting\n"
        (queue,) = [queue.queue for queue in client.offsets.query("orders") if queue.max_offset]
        place = ("--queue", str(queue), "--offset", "0")
        assert run("client", "verify", "worker@1@0@x", "orders", *place, "--json").objects == [
            {"code": "OK", "text": "done"}
        ]
        assert [message.body for message in obliging.verified] == [b"paid"]
    done = run("client", "stack", "nobody")
    assert (done.code, "nobody" in done.err) == (1, True)


@pytest.mark.slow
def test_stopped_message_groups_are_listed_and_resumed(run: Cli, client: popmq.Client) -> None:
    client.topics.create("letters", type="FIFO")
    client.groups.create("careful", max_attempts=1, stop_on_failure=True)
    client.send("letters", [popmq.Message(body, message_group="seven") for body in ("a", "b")])
    first, _ = client.pop("letters", "careful")
    client.release(first, reason="not today\nTraceback")
    listed = run("message-groups", "list", "letters", "careful")
    assert listed.out.splitlines()[1] == "seven\t2\t0\tstopped\tnot today"
    assert listed.err == "2 messages waiting, 1 message group stopped\n"
    resumed = run("message-groups", "resume", "letters", "careful", "seven", "--dead-letter")
    assert resumed.err == "seven goes on, without its head\n"
    assert [delivery.text() for delivery in client.pop("letters", "careful")] == ["b"]
    assert run("message-groups", "resume", "letters", "careful", "seven").code == 1


def test_fair_keys_are_set_changed_shown_and_turned_off(run: Cli, client: popmq.Client) -> None:
    asked = [
        "--fair-key",
        "property:tenant",
        "--fair-label",
        "/",
        "--key-in-flight-max",
        "20",
        "--key-limits",
        "acme=100,0",
    ]
    assert run("group", "create", "fair", *asked).code == 0
    acme = popmq.FairKeyLimits("acme", 100, 0)
    assert client.groups.get("fair").fair_keys == popmq.FairKeys("tenant", False, "/", 20, 0, (acme,))
    assert run("group", "update", "fair", "--key-rate", "50").code == 0
    assert client.groups.get("fair").fair_keys == popmq.FairKeys("tenant", False, "/", 20, 50, (acme,))
    client.send("orders", [popmq.Message("a", properties={"tenant": "acme"}) for _ in range(3)])
    client.pop("orders", "fair", max_messages=1)
    text = run("group", "describe", "fair").out
    assert (
        "property tenant; labels before '/'; at most 20 in flight and 50 a second; acme: at most 100 in flight" in text
    )
    assert "orders\tacme\t2\t1\n" in text
    assert run("group", "update", "fair", "--no-fair-keys").code == 0
    assert client.groups.get("fair").fair_keys is None


@pytest.mark.parametrize(
    "wrong",
    [
        ["--fair-key", "tenant"],
        ["--fair-key", "property:"],
        ["--key-rate", "5"],
        ["--fair-key", "key", "--no-fair-keys"],
        ["--fair-key", "key", "--key-limits", "acme"],
    ],
)
def test_options_of_fair_keys_that_make_no_sense_are_refused(run: Cli, wrong: list[str]) -> None:
    assert run("group", "create", "fair", *wrong).code == 2
