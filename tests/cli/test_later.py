"""`popmq delayed`, `recall`, `transactions`: what is not visible yet; and what else a message may ask for."""

import json
from datetime import UTC, datetime

import pytest

import popmq
from popmq.testing import FakeClock
from tests.cli.conftest import Cli


@pytest.fixture
def mail(client: popmq.Client, popmq_clock: FakeClock) -> popmq.Client:
    """A topic that takes delayed messages and transactions, on a broker whose time stands still."""
    client.topics.create("mail", type="DELAY")
    return client


@pytest.mark.slow
def test_a_delayed_message_is_sent_listed_and_recalled(run: Cli, mail: popmq.Client, popmq_clock: FakeClock) -> None:
    (receipt,) = run("send", "mail", "later", "--delay", "10m", "--json").objects
    (listed,) = run("delayed", "mail", "--json").objects
    assert (listed["due_ms"], listed["topic"]) == (popmq_clock.now_ms() + 600_000, "mail")
    assert listed["message_id"] == receipt["message_id"]
    heading, row = run("delayed").out.splitlines()
    assert heading.split("\t") == ["TOPIC", "MESSAGE", "DUE", "IN", "STORED", "RECALL HANDLE", "KEYS", "TAG", "BODY"]
    assert row.split("\t")[:2] == ["mail", receipt["message_id"]]
    recalled = run("recall", "mail", receipt["recall_handle"], "--json")
    assert recalled.objects == [{"message_id": receipt["message_id"]}]
    assert run("recall", "mail", listed["recall_handle"]).code == 1
    popmq_clock.advance(3_600_000)
    assert mail.pop("mail", "billing") == []


@pytest.mark.capability("reschedule")
def test_a_delayed_message_is_found_by_its_key_and_moved(run: Cli, mail: popmq.Client, popmq_clock: FakeClock) -> None:
    handle = mail.send("mail", popmq.Message("later", key="k", delay=60.0)).recall_handle
    mail.send("mail", popmq.Message("another", delay=60.0))
    (found,) = run("delayed", "mail", "--key", "k", "--json").objects
    assert (found["recall_handle"], found["preview"]["keys"]) == (handle, ["k"])
    moved = run("reschedule", "mail", handle, "--delay", "2h")
    assert "is due at 2023-11-15T00:13:20Z" in moved.err
    (found,) = run("delayed", "mail", "--id", found["message_id"], "--json").objects
    assert found["recall_handle"] == moved.out.strip() != handle
    assert run("reschedule", "mail", handle, "--delay", "2h").code == 1
    assert run("reschedule", "mail", handle).code == 2


def test_some_of_many_recalled_are_distinguished(run: Cli, mail: popmq.Client) -> None:
    handle = mail.send("mail", popmq.Message("later", delay=60.0)).recall_handle
    done = run("recall", "mail", handle, "nonsense")
    assert done.code == 4
    assert "1 of 2 entries were refused" in done.err
    assert mail.messages.list_delayed().total == 0


def test_a_time_may_be_told_and_bounds_the_list(run: Cli, mail: popmq.Client, popmq_clock: FakeClock) -> None:
    due = datetime.fromtimestamp(popmq_clock.now() + 60, UTC)
    run("send", "mail", "a", "b", "--deliver-at", due.isoformat())
    line = json.dumps({"body": "c", "deliver_at": due.isoformat()})
    run("send", "mail", "--json-lines", stdin=f'{{"body": "d", "delay": "2m"}}\n{line}'.encode())
    dues = [each["due_ms"] - popmq_clock.now_ms() for each in run("delayed", "--json").objects]
    assert dues == [60_000, 60_000, 60_000, 120_000]
    until = datetime.fromtimestamp(popmq_clock.now() + 61, UTC).isoformat()
    assert len(run("delayed", "--until", until, "--json").objects) == 3
    assert run("delayed", "--max", "1").err == "3 more: raise --max\n"


def test_the_lists_show_keys_tags_and_the_beginning_of_bodies(run: Cli, mail: popmq.Client) -> None:
    long = "é" * 200
    mail.send("mail", popmq.Message(long, delay=60.0, key="k1", more_keys=["k2"], tag="red"))
    mail.send("mail", popmq.Message(b"\xff", transaction=True))
    mail.send("mail", popmq.Message("two\nlines", transaction=True, key="k"))
    assert run("delayed").out.splitlines()[1].split("\t")[-3:] == ["k1, k2", "red", f"{long[:40]}…"]
    (delayed,) = run("delayed", "--json").objects
    assert delayed["preview"] == {"body": "é" * 128, "keys": ["k1", "k2"], "tag": "red", "body_bytes": 400}
    rows = [line.split("\t")[-3:] for line in run("transactions", "list").out.splitlines()[1:]]
    assert rows == [["", "", "\\xff"], ["k", "", "two\\nlines"]]
    first, _ = run("transactions", "list", "--json").objects
    assert first["preview"] == {"body_base64": "/w==", "keys": [], "tag": "", "body_bytes": 1}


@pytest.mark.slow
def test_half_messages_are_listed_and_ended_by_an_operator(run: Cli, mail: popmq.Client) -> None:
    mail.send("mail", [popmq.Message(body, transaction=True) for body in ("kept", "dropped")])
    kept, dropped = run("transactions", "list", "mail", "--json").objects
    assert (kept["topic"], kept["checks"]) == ("mail", 0)
    row = run("transactions", "list").out.splitlines()[1].split("\t")
    assert row[:3] == ["mail", kept["message_id"], kept["transaction_id"]]
    (receipt,) = run("transactions", "commit", kept["transaction_id"], "--json").objects
    assert receipt["offset"] == 0
    assert run("transactions", "rollback", dropped["transaction_id"]).err == "1 rolled back\n"
    assert run("transactions", "commit", dropped["transaction_id"]).code == 1
    assert [delivery.text() for delivery in mail.pop("mail", "billing")] == ["kept"]


@pytest.mark.slow
def test_a_half_message_that_was_given_up_can_be_committed_by_an_operator(
    run: Cli, mail: popmq.Client, popmq_clock: FakeClock
) -> None:
    mail.send("mail", popmq.Message("kept", transaction=True, message_id="m1"))
    mail.transactions.on_check("mail", lambda check: None)
    while mail.transactions.list().total:
        popmq_clock.advance(30_000)
    (given_up,) = run("message", "TRANS_CHECK_MAX_TIME_TOPIC", "--id", "m1", "--json").objects
    assert given_up["dead_letter"]["topic"] == "mail"
    assert run("why", "m1", "--json").objects[0]["place"] == "given up"
    missing = run("transactions", "redrive", "--id", "m2")
    assert (missing.code, missing.err.splitlines()[0]) == (4, "0 committed")
    assert run("transactions", "redrive", "--topic", "mail", "--yes").err == "1 committed\n"
    assert [delivery.text() for delivery in mail.pop("mail", "billing")] == ["kept"]


@pytest.mark.embedded("PRIORITY topics, as brokers 5.4 have")
def test_message_group_and_priority_are_sent(run: Cli, client: popmq.Client) -> None:
    client.topics.create("letters", type="FIFO")
    client.topics.create("urgent", type="PRIORITY")
    run("send", "letters", "first", "second", "--message-group", "customer-7")
    run("send", "urgent", "now", "--priority", "9")
    text = run("pop", "letters", "billing", "--max", "2").out
    assert text.count("message group customer-7") == 2
    assert text.index("first") < text.index("second")
    assert "priority 9" in run("pop", "urgent", "billing").out
