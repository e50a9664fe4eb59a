"""FIFO topics over the wire: what a client in any language sees of order, failures and stopped message groups."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from tests.wire.stubs import CALL_S, GROUP, Stubs, bodies, handles, refusal

LEDGER = "ledger"


@pytest.fixture
def ledger(stubs: Stubs) -> Stubs:
    """A FIFO topic of one queue, and a group."""
    stubs.create_topic(LEDGER, type=pb.FIFO, queues=1)
    stubs.create_group(max_attempts=1, stop_on_failure=True)
    return stubs


def send(ledger: Stubs, *texts: str) -> pb.SendResponse:
    """The first character is the message group."""
    messages = [pb.Message(body=text.encode(), message_group=text[0]) for text in texts]
    answer: pb.SendResponse = ledger.broker.Send(pb.SendRequest(topic=LEDGER, messages=messages), timeout=CALL_S)
    return answer


def message_groups(ledger: Stubs, **fields: Any) -> pb.ListMessageGroupsResponse:
    request = pb.ListMessageGroupsRequest(topic=LEDGER, group=GROUP, **fields)
    answer: pb.ListMessageGroupsResponse = ledger.admin.ListMessageGroups(request, timeout=CALL_S)
    return answer


def test_a_stopped_message_group_is_listed_and_goes_on_when_resumed(ledger: Stubs) -> None:
    send(ledger, "a1", "a2", "b1")
    popped = ledger.pop(LEDGER)
    ledger.change(handles(popped)[0], release=pb.Release(reason="no such account"))
    listed = message_groups(ledger, stopped_only=True)
    assert [(row.message_group, row.waiting, row.stopped, row.reason) for row in listed.message_groups] == [
        ("a", 2, True, "no such account")
    ]
    assert (listed.waiting, listed.stopped) == (2, 1)
    assert ledger.stats(LEDGER).stopped == 1
    resume = pb.ResumeMessageGroupRequest(topic=LEDGER, group=GROUP, message_group="a", dead_letter=True)
    ledger.admin.ResumeMessageGroup(resume, timeout=CALL_S)
    assert bodies(ledger.pop(LEDGER)) == [b"a2"]
    assert refusal(ledger.admin.ResumeMessageGroup, resume).code == "MESSAGE_NOT_FOUND"


def test_a_locked_message_group_is_listed_with_its_waiting_messages(ledger: Stubs) -> None:
    send(ledger, "a1", "a2")
    ledger.pop(LEDGER, max_messages=1)
    ledger.pop(LEDGER)
    (row,) = message_groups(ledger).message_groups
    assert (row.message_group, row.waiting, row.leased, row.stopped) == ("a", 1, 1, False)
    assert ledger.stats(LEDGER).waiting == 1


def test_a_topic_of_another_type_has_no_message_groups_to_resume(ledger: Stubs) -> None:
    ledger.create_topic("plain")
    request = pb.ResumeMessageGroupRequest(topic="plain", group=GROUP, message_group="a")
    refused = refusal(ledger.admin.ResumeMessageGroup, request)
    assert (refused.code, refused.info.field) == ("INVALID_FIELD", "topic")
