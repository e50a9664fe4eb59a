"""`popmq browse` over all queues: --newest and --search."""

import json

import popmq
from tests.cli.conftest import Cli


def shown(out: str) -> list[str]:
    return [json.loads(line)["body"] for line in out.splitlines()]


def test_browse_shows_the_newest_messages_first(run: Cli, client: popmq.Client) -> None:
    for number in range(25):
        client.send("orders", str(number))
    assert shown(run("browse", "orders", "--newest", "--json").out) == [str(number) for number in range(24, 4, -1)]
    assert shown(run("browse", "orders", "--newest", "--max", "2", "--json").out) == ["24", "23"]


def test_browse_searches_all_queues_oldest_first_or_newest_first(run: Cli, client: popmq.Client) -> None:
    client.send("orders", popmq.Message("one", key="bob@example.com"))
    client.send("orders", "two")
    client.send("orders", popmq.Message("three", properties={"user": "bob@example.com"}))
    assert shown(run("browse", "orders", "--search", "bob@", "--json").out) == ["one", "three"]
    assert shown(run("browse", "orders", "--newest", "--search", "bob@", "--json").out) == ["three", "one"]
    assert run("browse", "orders", "--search", "nobody").err.endswith("no message in orders\n")


def test_browse_refuses_a_search_that_follows_or_filters(run: Cli) -> None:
    for option in (["--follow"], ["--tag", "eu"], ["--sql", "a = 1"]):
        assert run("browse", "orders", "--newest", *option).code == 2
