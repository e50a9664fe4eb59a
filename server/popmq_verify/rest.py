"""Brings a broker to rest after a campaign, and then reads everything in it.

At rest every message is done or a dead letter for each group, so the numbers can be compared exactly. The pops and acks
that get there are recorded too, since a message may come back here that must not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_verify.judging.facts import DeadLetter, Survey
from popmq_verify.load.client import GROUPS, MAX_ATTEMPTS, TOPICS, body_of, told_of_ack, told_of_pop
from popmq_verify.load.history import Recorder
from popmq_verify.load.stubs import Stubs

REST_WITHIN_S = 90
# With an hour a round, more of them would only wait for retention to drop what a defect left.
REST_ROUNDS = 40


def come_to_rest(
    stubs: Stubs, recorder: Recorder, pass_time: Callable[[], None] | None = None, dropping: bool = False
) -> Survey:
    """Pops and acks the remaining messages until every number is zero, then reads everything that is stored.

    `pass_time` moves the clock of an embedded broker on; without it leases end by themselves. `dropping`: retention
    drops what every group has finished, which at rest is all: the survey waits for that too, up to the same deadline.
    """
    deadline = time.monotonic() + REST_WITHIN_S
    for _ in range(REST_ROUNDS) if pass_time else count():
        for topic in TOPICS:  # at least once: a group has no numbers in a topic that it never popped
            for group in GROUPS:
                _finish(stubs, recorder, topic, group, wait_ms=0 if pass_time else 100)
        if _at_rest(stubs) or time.monotonic() > deadline:
            break
        if pass_time:
            pass_time()
    recorder.close()
    while dropping and any(True for topic in TOPICS for _ in _browse(stubs, topic)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return _survey(stubs, dropping)


def _at_rest(stubs: Stubs) -> bool:
    """Whether no group has a message that is ready, leased, waiting for a retry, or in backoff."""
    groups = stubs.admin.GetStats(pb.GetStatsRequest(), timeout=10).groups
    return not any(
        one.ready or one.in_flight or one.retry or one.backoff or one.waiting for one in groups if one.topic in TOPICS
    )


def _finish(stubs: Stubs, recorder: Recorder, topic: str, group: str, wait_ms: int) -> None:
    """Pops up to 1,000 messages and acks them, recorded as any client does."""
    request = pb.PopRequest(topic=topic, group=group, max_messages=1000, wait_ms=wait_ms, invisible_ms=5000)
    recorder.called("pop", topic=topic, group=group, attempt_id="")
    answer = stubs.broker.Pop(request, timeout=20)
    recorder.returned("ok", **told_of_pop(answer))
    handles = [delivery.handle for delivery in answer.deliveries]
    if handles:
        recorder.called("ack", group=group, handles=handles)
        acked = stubs.broker.Ack(pb.AckRequest(group=group, handles=handles), timeout=20)
        recorder.returned("ok", **told_of_ack(handles)(acked))


def _survey(stubs: Stubs, dropping: bool) -> Survey:
    """Reads everything that is stored: positions of all messages, all dead letters, and the numbers of each group."""
    survey = Survey(max_attempts=MAX_ATTEMPTS, dropping=dropping)
    for topic in TOPICS:
        stored = survey.stored[topic] = {}
        for delivery in _browse(stubs, topic):
            stored.setdefault(delivery.message.message_id, []).append((delivery.queue, delivery.offset))
    known = {topic.name for topic in stubs.admin.ListTopics(pb.ListTopicsRequest(dead_letter_topics=True)).topics}
    for group in GROUPS:
        dead = survey.dead[group] = {}
        for delivery in _browse(stubs, f"%DLQ%{group}") if f"%DLQ%{group}" in known else ():
            dead.setdefault(delivery.message.message_id, []).append(_dead_letter(delivery.message))
    for stats in stubs.admin.GetStats(pb.GetStatsRequest(), timeout=10).groups:
        numbers = {field.name: getattr(stats, field.name) for field in stats.DESCRIPTOR.fields}
        if stats.topic in TOPICS:
            survey.stats[stats.group, stats.topic] = numbers
    return survey


def _browse(stubs: Stubs, topic: str) -> Iterator[pb.Delivery]:
    """All messages of a topic, queue by queue, without a lease."""
    queues = stubs.admin.GetTopic(pb.GetTopicRequest(name=topic), timeout=10).topic.queues
    for queue in range(queues):
        request = pb.BrowseRequest(topic=topic, queue=queue, max_messages=64)
        while True:
            page = stubs.admin.Browse(request, timeout=20)
            yield from page.deliveries
            if page.next_offset >= page.max_offset:
                break
            request.offset = page.next_offset


def _dead_letter(message: pb.Message) -> DeadLetter:
    """A dead letter in the form that the checker compares."""
    letter = message.dead_letter
    intact = message.body == body_of(message.message_id)
    return DeadLetter(letter.topic, (letter.queue, letter.offset), letter.attempts, letter.reason, intact)
