"""A topic that was deleted and created again: offsets say which of the two they are of."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, refusal

RETRY = f"%RETRY%{GROUP}+{TOPIC}"


@pytest.fixture
def feed(stubs: Stubs) -> Stubs:
    """A topic of one queue with two messages, which a group pulls."""
    stubs.create_group()
    create(stubs, b"old 0", b"old 1")
    return stubs


def create(stubs: Stubs, *messages: bytes) -> None:
    stubs.create_topic(queues=1)
    request = pb.SetConsumeModeRequest(topic=TOPIC, group=GROUP, mode=pb.PULL)
    stubs.admin.SetConsumeMode(request, timeout=CALL_S)
    stubs.send(*messages)


def create_again(stubs: Stubs) -> None:
    """In the same millisecond: the clock stands still."""
    stubs.admin.DeleteTopic(pb.DeleteTopicRequest(name=TOPIC), timeout=CALL_S)
    create(stubs, b"new 0", b"new 1", b"new 2")


def pull(stubs: Stubs, **fields: Any) -> pb.PullResponse:
    request = pb.PullRequest(**{"topic": TOPIC, "group": GROUP, **fields})
    answer: pb.PullResponse = stubs.broker.Pull(request, timeout=CALL_S)
    return answer


def created(stubs: Stubs, topic: str = TOPIC) -> int:
    """What QueryOffsets says of each queue."""
    request = pb.QueryOffsetsRequest(topic=topic, group=GROUP)
    (queue,) = stubs.broker.QueryOffsets(request, timeout=CALL_S).queues
    return int(queue.topic_created_ms)


@pytest.mark.embedded("the time at which a topic was made")
def test_every_answer_with_offsets_names_the_topic_that_they_are_of(feed: Stubs) -> None:
    topic = feed.admin.GetTopic(pb.GetTopicRequest(name=TOPIC), timeout=CALL_S).topic
    known = {pull(feed).topic_created_ms, pull(feed, topic=RETRY).topic_created_ms, created(feed), created(feed, RETRY)}
    assert known == {topic.created_ms}
    create_again(feed)
    assert created(feed) == pull(feed).topic_created_ms > topic.created_ms


@pytest.mark.embedded("the time at which a topic was made")
@pytest.mark.parametrize("topic", [TOPIC, RETRY])
def test_a_pull_and_a_commit_of_offsets_of_the_topic_before_are_refused_and_change_nothing(
    feed: Stubs, topic: str
) -> None:
    before = created(feed)
    create_again(feed)
    commit = pb.UpdateOffsetsRequest(topic=topic, group=GROUP, offsets={0: 1}, topic_created_ms=before)
    read = pb.PullRequest(topic=topic, group=GROUP, offset=1, commit_offset=1, topic_created_ms=before)
    for call, request in ((feed.broker.Pull, read), (feed.broker.UpdateOffsets, commit)):
        refused = refusal(call, request)
        assert (refused.code, refused.info.field) == ("TOPIC_NOT_FOUND", "topic_created_ms")
    (queue,) = feed.broker.QueryOffsets(pb.QueryOffsetsRequest(topic=TOPIC, group=GROUP), timeout=CALL_S).queues
    assert (queue.committed, queue.max_offset) == (0, 3)


@pytest.mark.embedded("the time at which a topic was made")
def test_a_message_of_the_topic_before_is_not_sent_back_as_one_of_the_new(feed: Stubs) -> None:
    before = created(feed)
    create_again(feed)
    request = pb.SendBackRequest(topic=TOPIC, group=GROUP, messages=[pb.SentBack(offset=1)], topic_created_ms=before)
    assert refusal(feed.broker.SendBack, request).info.field == "topic_created_ms"
    assert not pull(feed, topic=RETRY).deliveries


def test_the_topic_that_is_there_is_accepted_by_its_time_and_without_one(feed: Stubs) -> None:
    for known in (0, created(feed)):
        assert [row.message.body for row in pull(feed, offset=1, topic_created_ms=known).deliveries] == [b"old 1"]
