"""Lite topics on the command line."""

import pytest

import popmq
from tests.cli.conftest import Cli


@pytest.mark.slow
def test_lite_topics_are_made_sent_to_popped_and_counted(run: Cli, client: popmq.Client) -> None:
    run("group", "create", "app")
    assert run("topic", "create", "chats", "--type", "LITE", "--lite-ttl", "12h", "--lite-topics", "2").code == 0
    assert client.topics.get("chats").lite == popmq.LiteTopics(2, 12 * 3600.0)
    run("send", "chats", "--lite-topic", "ann", "one", "two")
    run("send", "chats", "--lite-topic", "bob", "three")
    refused = run("send", "chats", "--lite-topic", "zoe", "four")
    assert (refused.code == 0, "LITE_TOPIC_QUOTA" in refused.err or "lite topics" in refused.err) == (False, True)
    assert run("pop", "chats", "app", "--lite-topic", "ann", "--max", "5", "--ack").out.splitlines() == ["one", "two"]
    assert "lite topics" in run("topic", "describe", "chats").out
    assert run("topic", "update", "chats", "--lite-topics", "3").code == 0
    assert client.topics.get("chats").lite == popmq.LiteTopics(3, 12 * 3600.0)
