"""Requests that become dead letters: the broker replies to who waits, in the same commit, and only in the topic of
replies.
"""

import inspect
from typing import Any

import pytest

from popmq._calls import requests
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.lite import failed_requests
from popmq_server.values.message import REPLIES, REPLY_TO
from tests.engine.rig import HOUR, MINUTE, Rig, message


@pytest.fixture
def rig(rig: Rig) -> Rig:
    """Topic t with group g, and the topic of replies with a group."""
    rig.pair(max_attempts=1)
    rig.do(ask.CreateTopic(REPLIES, 1, False, HOUR, type="LITE", lite_topics_max=2, lite_ttl_ms=HOUR))
    rig.group(REPLIES)
    return rig


def send(rig: Rig, reply_to: str = f"{REPLIES}/mine", text: str = "a") -> None:
    asked = message(text, properties={REPLY_TO: reply_to, requests.CORRELATION_ID: f"c-{text}"})
    rig.do(ask.Send("t", (asked,)))


def replies(rig: Rig, lite_topic: str = "mine") -> list[pb.Message]:
    popped = rig.do(ask.Pop(REPLIES, REPLIES, lite=(lite_topic,)))
    return [pb.Message.FromString(row[0]) for row in popped.rows]


def test_a_rejected_request_is_answered_with_the_reason(rig: Rig) -> None:
    send(rig)
    rig.reject(rig.pop(), "no stock")
    (reply,) = replies(rig)
    assert reply.properties[requests.CORRELATION_ID] == "c-a"
    assert reply.properties[requests.ERROR] == "it is a dead letter of group g after 1 attempt: no stock"
    assert (reply.lite_topic, reply.body != b"") == ("mine", True)


def test_a_request_whose_last_lease_expires_is_answered(rig: Rig) -> None:
    send(rig)
    rig.pop()
    rig.advance(2 * MINUTE)
    (reply,) = replies(rig)
    assert reply.properties[requests.ERROR].endswith("lease expired")


def test_requests_of_one_commit_are_answered_once_each(rig: Rig) -> None:
    for text in "abc":
        send(rig, text=text)
    rows = rig.pop()
    rig.run(*(ask.ChangeInvisibleTime("g", (ask.Change(row.handle, "reject"),)) for row in rows))
    assert sorted(reply.properties[requests.CORRELATION_ID] for reply in replies(rig)) == ["c-a", "c-b", "c-c"]


@pytest.mark.parametrize(
    "reply_to", ["other/mine", REPLIES, f"{REPLIES}/", f"{REPLIES}/no name", "", f"{REPLIES}/{'x' * 65}"]
)
def test_a_request_that_names_another_place_is_not_answered(rig: Rig, reply_to: str) -> None:
    rig.do(ask.CreateTopic("other", 1, False, HOUR, type="LITE", lite_topics_max=2, lite_ttl_ms=HOUR))
    send(rig, reply_to)
    rig.reject(rig.pop())
    assert [len(rig.look(ask.queries.Topics(name))[0].queues) for name in (REPLIES, "other")] == [1, 1]
    assert [rig.look(ask.queries.Topics(name))[0].lite_topics for name in (REPLIES, "other")] == [0, 0]
    assert len(rig.dead()) == 1


@pytest.mark.parametrize("change", ["closed", "deleted", "no more lite topics"])
def test_a_dead_letter_does_not_fail_where_the_reply_has_no_place(rig: Rig, change: str) -> None:
    commands: dict[str, Any] = {
        "closed": [ask.UpdateTopic(REPLIES, 0, None, (("permission", "READ_ONLY"),))],
        "deleted": [ask.DeleteTopic(REPLIES)],
    }
    for command in commands.get(change, ()):
        rig.do(command)
    if change == "no more lite topics":
        for name in ("x", "y"):
            send(rig, f"{REPLIES}/{name}")
            rig.reject(rig.pop())
    before = len(rig.dead())
    send(rig)
    rig.reject(rig.pop())
    assert len(rig.dead()) == before + 1


def test_the_words_are_those_of_the_client() -> None:
    assert (REPLIES, REPLY_TO) == (requests.REPLIES, requests.REPLY_TO)
    written = inspect.getsource(failed_requests)
    assert f'"{requests.CORRELATION_ID}"' in written
    assert f'"{requests.ERROR}"' in written
