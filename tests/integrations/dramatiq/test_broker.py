"""Dramatiq on PopMQ: what its broker does for messages, workers and operators."""

import json
import threading
from typing import Any

import dramatiq
import pytest
from dramatiq.errors import ConnectionClosed, QueueJoinTimeout, QueueNotFound

import popmq
from popmq.testing import Broker, FakeClock
from popmq_integrations.dramatiq import PopMQBackend, PopMQBroker
from tests.integrations.dramatiq.conftest import Working
from tests.integrations.dramatiq.helpers import actor, taken

HOUR_MS = 3_600_000


def test_a_delayed_message_waits_in_the_broker_and_not_in_a_worker(
    queues: PopMQBroker, working: Working, popmq_clock: FakeClock
) -> None:
    ran = threading.Event()
    act = dramatiq.actor(ran.set)
    with working() as worker:
        act.send_with_options(delay=HOUR_MS)
        popmq_clock.advance(HOUR_MS - 1)
        assert queues.get_queue_message_counts("default") == (0, 1, 0)
        assert list(worker.consumers) == ["default"]  # no consumer of a delay queue
        assert not ran.is_set()
        popmq_clock.advance(1)
        assert ran.wait(30)


def test_a_retry_is_stored_in_the_commit_that_ends_its_attempt(queues: PopMQBroker) -> None:
    act = actor("fails", min_backoff=HOUR_MS, max_backoff=HOUR_MS)
    act.send()
    consumer, message = taken(queues)
    queues.emit_after("process_message", message, exception=ValueError("no account 7"))
    assert queues.get_queue_message_counts("default") == (1, 0, 0)  # a worker that is killed here leaves one message
    consumer.ack(message)
    consumer.close()
    assert queues.get_queue_message_counts("default") == (0, 1, 0)


def test_the_next_message_of_a_pipeline_is_stored_with_the_ack_of_the_one_before(queues: PopMQBroker) -> None:
    double = actor("double", lambda number: 2 * number)
    (double.message(3) | double.message()).run()
    consumer, message = taken(queues)
    queues.emit_after("process_message", message, result=6)
    assert queues.get_queue_message_counts("default") == (1, 0, 0)
    consumer.ack(message)
    while (following := next(consumer)) is None:
        pass
    assert following.args == (6,)


@pytest.mark.parametrize(
    ("failed", "reason"),
    [(False, "what is enqueued when it ends cannot be sent: the body has"), (True, "ValueError: no")],
)
def test_a_message_with_whose_end_too_much_is_enqueued_is_a_dead_letter_and_runs_once(
    queues: PopMQBroker, failed: bool, reason: str
) -> None:
    actor("one").send()
    consumer, message = taken(queues)
    assert message.rides(popmq.Send("dramatiq.default", popmq.Message(b"x" * 5_000_000)), queues.client.endpoint)
    if failed:
        message.stuff_exception(ValueError("no"))
        consumer.nack(message)
    else:
        consumer.ack(message)
    consumer.close()
    (dead,) = queues.client.messages.browse("%DLQ%dramatiq.default").deliveries
    assert dead.dead_letter is not None
    assert dead.dead_letter.reason.startswith(reason)
    assert queues.get_queue_message_counts("default") == (0, 0, 1)


def test_a_failed_message_is_a_dead_letter_with_its_traceback(queues: PopMQBroker, working: Working) -> None:
    @dramatiq.actor(max_retries=0)
    def divide() -> None:
        print(1 / 0)

    divide.send()
    with working():
        queues.join("default")
    (dead,) = queues.client.messages.browse("%DLQ%dramatiq.default").deliveries
    assert dead.dead_letter is not None
    assert dead.tag == "divide"
    first, *rest = dead.dead_letter.reason.splitlines()
    assert first == "ZeroDivisionError: division by zero"
    assert "print(1 / 0)" in "\n".join(rest)
    assert "dramatiq/worker.py" not in dead.dead_letter.reason
    assert queues.get_queue_message_counts("default") == (0, 0, 1)


def test_a_redriven_dead_letter_runs_again(queues: PopMQBroker, working: Working) -> None:
    broken = threading.Event()
    broken.set()

    @dramatiq.actor(max_retries=0)
    def mended() -> None:
        assert not broken.is_set()

    mended.send()
    with working():
        queues.join("default")
        broken.clear()
        assert queues.client.dead_letters.redrive("dramatiq.default").redriven == 1
        queues.join("default")
    assert queues.get_queue_message_counts("default") == (0, 0, 0)


def test_a_message_for_an_actor_that_no_worker_has_is_a_dead_letter(queues: PopMQBroker, working: Working) -> None:
    queues.declare_queue("default")
    queues.enqueue(dramatiq.Message("default", "nobody", (), {}, {}))
    with working():
        queues.join("default")
    (dead,) = queues.client.messages.browse("%DLQ%dramatiq.default").deliveries
    assert dead.dead_letter is not None
    assert dead.dead_letter.reason.startswith("ActorNotFound: nobody")


def test_what_is_no_message_of_dramatiq_is_a_dead_letter_and_harms_no_other(
    queues: PopMQBroker, working: Working
) -> None:
    ran = threading.Event()
    act = dramatiq.actor(ran.set)
    act.send()
    queues.client.send("dramatiq.default", "not of this kind")
    with working():
        queues.join("default")
    assert ran.is_set()
    assert queues.get_queue_message_counts("default") == (0, 0, 1)


@pytest.mark.parametrize(
    "wrong", [{"queue_name": "mails"}, {"queue_name": None}, {"options": None}, {"actor_name": ["print"]}]
)
def test_a_message_that_would_end_a_thread_of_the_worker_is_a_dead_letter(
    queues: PopMQBroker, working: Working, wrong: dict[str, Any]
) -> None:
    ran = threading.Event()
    act = dramatiq.actor(ran.set)
    act.send()
    (told,) = queues.client.messages.browse("dramatiq.default").deliveries
    queues.client.send("dramatiq.default", [json.dumps(told.json() | wrong)] * 3)
    with working():
        queues.join("default")
    assert ran.is_set()
    assert queues.get_queue_message_counts("default") == (0, 0, 3)


def test_urgent_messages_come_first(queues: PopMQBroker) -> None:
    say = actor("say")
    urgent = actor("urgent", broker_priority=9)
    say.send(1)
    say.send_with_options(args=(2,), broker_priority=5)
    urgent.send(3)
    consumer, first = taken(queues)
    order = [first]
    while len(order) < 3:
        consumer.ack(order[-1])
        order.append(next(consumer) or order.pop())
    assert [message.args for message in order] == [(3,), (2,), (1,)]


def test_messages_that_no_actor_has_begun_are_given_back_at_once_and_no_attempt_counts(queues: PopMQBroker) -> None:
    say = actor("say")
    for number in range(3):
        say.send(number)
    consumer = queues.consume("default", prefetch=3, timeout=1000)
    while (begun := next(consumer)) is None:
        pass
    consumer.requeue([begun])
    consumer.close()
    queues.close()  # sends what it decided
    again = queues.client.pop("dramatiq.default", "dramatiq.default", max_messages=10)
    assert [delivery.attempt for delivery in again] == [1, 1, 1]


def test_a_lease_is_renewed_for_as_long_as_an_actor_runs(
    queues: PopMQBroker, popmq_clock: FakeClock, popmq_broker: Broker
) -> None:
    actor("slow").send()
    consumer, message = taken(queues)
    popmq_clock.advance(HOUR_MS // 6)
    assert popmq_broker.client().pop("dramatiq.default", "dramatiq.default") == []
    consumer.ack(message)
    consumer.close()
    assert queues.get_queue_message_counts("default") == (0, 0, 0)


def test_nothing_connects_before_the_first_message() -> None:
    queues = PopMQBroker("127.0.0.1:1", retry=popmq.Retry(tries=1))
    dramatiq.set_broker(queues)
    act = actor("early")
    with pytest.raises(ConnectionClosed):
        act.send()
    with pytest.raises(ConnectionClosed):
        queues.consume("default")
    queues.close()


def test_a_topic_that_was_deleted_is_made_again(queues: PopMQBroker) -> None:
    act = actor("again")
    act.send()
    queues.client.topics.delete("dramatiq.default")
    act.send()
    assert queues.get_queue_message_counts("default") == (1, 0, 0)


def test_an_operator_s_settings_of_topic_and_group_stay(queues: PopMQBroker) -> None:
    queues.client.topics.create("dramatiq.mails", type="DELAY", queues=3)
    queues.client.groups.create("dramatiq.mails", max_attempts=2)
    actor("mail", queue_name="mails").send()
    assert queues.client.topics.get("dramatiq.mails").queues == 3
    assert queues.client.groups.get("dramatiq.mails").max_attempts == 2


def test_flush_drops_messages_and_leaves_dead_letters(queues: PopMQBroker) -> None:
    act = actor("dropped")
    act.send()
    act.send_with_options(delay=HOUR_MS)
    (first,) = queues.client.pop("dramatiq.default", "dramatiq.default", 1)
    queues.client.reject(first, "by hand")
    act.send()
    queues.flush_all()
    assert queues.get_queue_message_counts("default") == (0, 0, 1)


def test_join_says_when_messages_are_left(queues: PopMQBroker) -> None:
    actor("left").send()
    with pytest.raises(QueueJoinTimeout):
        queues.join("default", timeout=1, interval=1)


def test_a_queue_that_was_not_declared_is_not_consumed(queues: PopMQBroker) -> None:
    with pytest.raises(QueueNotFound):
        queues.consume("nowhere")


@pytest.mark.parametrize("priority", [0, 1024, "high"])
def test_a_max_priority_that_no_topic_has_is_refused(priority: Any) -> None:
    with pytest.raises(ValueError, match="from 1 to 1023"):
        PopMQBroker(max_priority=priority)


@pytest.mark.parametrize("kind", [PopMQBroker, PopMQBackend])
def test_an_option_that_no_client_has_is_refused_before_anything_connects(kind: Any) -> None:
    with pytest.raises(TypeError, match="'invisble_time'"):
        kind(invisble_time="5s")


def test_messages_of_others_are_ignored_by_ack_and_nack(queues: PopMQBroker) -> None:
    queues.declare_queue("default")
    consumer = queues.consume("default", timeout=1)
    other = dramatiq.MessageProxy(dramatiq.Message("default", "nobody", (), {}, {}))
    consumer.ack(other)
    consumer.nack(other)
    consumer.requeue([other])
    consumer.close()
