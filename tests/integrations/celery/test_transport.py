"""The transport behind kombu, with a real broker."""

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import kombu
import pytest
from celery.exceptions import WorkerShutdown
from kombu.asynchronous import Hub

import popmq
from popmq.errors import InvalidField, TryLater
from popmq.testing import Broker, FakeClock
from popmq_integrations.celery import reader
from popmq_integrations.celery.channel import TRANSIENT_S
from tests.integrations.celery.conftest import Connect


def publish(connection: kombu.Connection, body: object, queue: str = "jobs", **options: Any) -> None:
    declared = kombu.Queue(queue, routing_key=queue)
    connection.Producer().publish(body, routing_key=queue, declare=[declared], **options)


class Consuming:
    """A consumer that keeps what it got; `ack` false: without an ack."""

    def __init__(self, connection: kombu.Connection, queue: kombu.Queue | str = "jobs", ack: bool = True) -> None:
        self.connection, self.got, self.messages = connection, [], []  # type: ignore[var-annotated]
        queue = kombu.Queue(queue, routing_key=queue) if isinstance(queue, str) else queue
        self.channel = connection.channel()
        self.consumer = kombu.Consumer(self.channel, [queue], callbacks=[self.take])
        self.ack = ack

    def take(self, body: Any, message: Any) -> None:
        self.got.append(body)
        self.messages.append(message)
        if self.ack:
            message.ack()

    def until(self, count: int) -> list[Any]:
        self.consumer.consume()
        while len(self.got) < count:
            self.connection.drain_events(timeout=20)
        return self.got

    def nothing_more(self) -> bool:
        try:
            self.connection.drain_events(timeout=0.2)
        except socket.timeout:  # noqa: UP041  # as kombu names it
            return True
        return False


def numbers(broker: Broker, queue: str = "jobs") -> popmq.GroupStats:
    return broker.client().broker.stats(queue, queue).groups[0]


def acked(broker: Broker, count: int) -> None:
    """Waits until the broker has so many acks: they are sent in the background."""
    while (numbers(broker).acked or 0) < count:
        pass


def test_a_message_has_the_body_headers_and_properties_that_it_was_sent_with(connection: kombu.Connection) -> None:
    publish(connection, {"a": 1}, headers={"task": "t", "n": [1]}, correlation_id="c", priority=3)
    consuming = Consuming(connection)
    assert consuming.until(1) == [{"a": 1}]
    (message,) = consuming.messages
    assert message.headers == {"task": "t", "n": [1]}
    assert (message.properties["correlation_id"], message.properties["priority"]) == ("c", 3)
    assert message.delivery_info["routing_key"] == "jobs"
    assert not message.delivery_info["redelivered"]


def test_the_task_s_id_and_name_are_key_and_tag(connection: kombu.Connection, popmq_broker: Broker) -> None:
    publish(connection, [], headers={"id": "task-1", "task": "pkg.tasks.add"})
    (found,) = popmq_broker.client().messages.look_up("jobs", key="task-1").deliveries
    assert (found.tag, found.body) == ("pkg.tasks.add", b"[]")


def test_a_task_with_an_eta_is_delivered_when_it_is_due_and_once(
    connection: kombu.Connection, popmq_broker: Broker, popmq_clock: FakeClock
) -> None:
    due = datetime.fromtimestamp(popmq_clock.now(), UTC) + timedelta(hours=30)
    publish(connection, "late", headers={"eta": due.isoformat()})
    publish(connection, "now")
    consuming = Consuming(connection)
    assert consuming.until(1) == ["now"]
    acked(popmq_broker, 1)
    popmq_clock.advance(30 * 3_600_000 - 1_000)  # far longer than any lease
    assert consuming.nothing_more()
    popmq_clock.advance(1_000)
    assert consuming.until(2) == ["now", "late"]
    acked(popmq_broker, 2)
    popmq_clock.advance(60 * 3_600_000)
    assert consuming.nothing_more()


def test_a_channel_holds_no_more_than_its_prefetch_count(connection: kombu.Connection, popmq_broker: Broker) -> None:
    for number in range(10):
        publish(connection, number)
    consuming = Consuming(connection, ack=False)
    consuming.channel.basic_qos(0, 4, False)
    assert consuming.until(4) == [0, 1, 2, 3]
    assert consuming.nothing_more()
    assert numbers(popmq_broker).in_flight == 4
    consuming.messages[0].ack()
    assert consuming.until(5) == [0, 1, 2, 3, 4]


def test_the_lease_is_renewed_while_a_message_is_not_acked(connect: Connect, popmq_broker: Broker) -> None:
    connection = connect(invisible_time="1s")
    publish(connection, "long")
    consuming = Consuming(connection, ack=False)
    consuming.until(1)
    client = popmq_broker.client()
    (first,) = client.leases.list("jobs").leases
    while client.leases.list("jobs").leases[0].due_ms == first.due_ms:
        assert numbers(popmq_broker).in_flight == 1
    consuming.messages[0].ack()
    assert consuming.nothing_more()


def test_priorities_are_delivered_highest_first(connection: kombu.Connection) -> None:
    for priority in (0, 9, 3, 9, 12):
        publish(connection, priority, priority=priority)
    assert Consuming(connection).until(5) == [9, 9, 12, 3, 0]


def test_a_message_that_expires_is_not_delivered(connection: kombu.Connection, popmq_clock: FakeClock) -> None:
    publish(connection, "old", expiration=2)
    publish(connection, "fresh")
    popmq_clock.advance(3_000)
    assert Consuming(connection).until(1) == ["fresh"]


def test_a_reject_is_a_dead_letter_and_a_requeue_comes_again(
    connection: kombu.Connection, popmq_broker: Broker
) -> None:
    publish(connection, "bad")
    consuming = Consuming(connection, ack=False)
    consuming.until(1)
    consuming.messages[0].requeue()
    consuming.until(2)
    assert consuming.messages[1].delivery_info["redelivered"]
    consuming.messages[1].reject()
    connection.release()
    (dead,) = popmq_broker.client().messages.browse("%DLQ%jobs").deliveries
    assert dead.dead_letter is not None
    assert dead.dead_letter.attempts == 2


def test_a_task_that_kills_each_of_its_workers_is_a_dead_letter_after_max_attempts(
    connect: Connect, popmq_broker: Broker
) -> None:
    connection = connect(max_attempts=3)
    publish(connection, "poison")
    consuming = Consuming(connection, ack=False)
    for count in (1, 2, 3):
        consuming.until(count)
        consuming.messages[-1].requeue()
    connection.release()
    assert numbers(popmq_broker).dead == 1


def test_what_was_not_acked_goes_to_another_connection_and_no_attempt_counts(
    connect: Connect, popmq_broker: Broker
) -> None:
    first, second = connect(), connect()
    for number in range(5):
        publish(first, number)
    Consuming(first, ack=False).until(5)
    first.release()
    consuming = Consuming(second)
    assert sorted(consuming.until(5)) == [0, 1, 2, 3, 4]
    assert not any(message.delivery_info["redelivered"] for message in consuming.messages)


def test_exchanges_route_also_between_connections_that_know_nothing_of_each_other(connect: Connect) -> None:
    exchange = kombu.Exchange("news", type="topic")
    all_of_a = Consuming(connect(), kombu.Queue("all", exchange, routing_key="a.#"))
    one_word = Consuming(connect(), kombu.Queue("one", exchange, routing_key="a.*"))
    fanout = kombu.Exchange("everybody", type="fanout")
    mine, yours = (Consuming(connect(), kombu.Queue(name, fanout, auto_delete=True)) for name in ("mine", "yours"))
    producer = connect().Producer()
    for key in ("a.b.c", "b.c", "a.b"):
        producer.publish(key, exchange=exchange, routing_key=key)
    producer.publish("hello", exchange=fanout)
    assert all_of_a.until(2) == ["a.b.c", "a.b"]
    assert all_of_a.nothing_more()
    assert one_word.until(1) == ["a.b"]
    assert one_word.nothing_more()
    assert mine.until(1) == yours.until(1) == ["hello"]


def test_what_another_program_has_bound_to_a_queue_reaches_each_of_its_consumers(connect: Connect) -> None:
    exchange = kombu.Exchange("news", type="topic")
    consuming = Consuming(connect(), kombu.Queue("all", exchange, routing_key="a.*"))
    consuming.consumer.consume()
    kombu.Queue("all", exchange, routing_key="b.*")(connect()).declare()
    producer = connect().Producer()
    for key in ("b.c", "a.b.c", "a.b"):
        producer.publish(key, exchange=exchange, routing_key=key)
    assert consuming.until(2) == ["b.c", "a.b"]


def test_an_exchange_to_which_another_program_binds_a_queue_is_read_by_its_consumers_too(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "LOOK_S", 0.01)
    consuming = Consuming(connect())
    publish(connect(), "one")
    assert consuming.until(1) == ["one"]
    bound = kombu.Queue("jobs", kombu.Exchange("late", type="direct"), routing_key="k")
    connect().Producer().publish("two", exchange="late", routing_key="k", declare=[bound])
    assert consuming.until(2) == ["one", "two"]


def test_a_queue_gets_what_is_published_after_it_was_bound(connect: Connect) -> None:
    exchange = kombu.Exchange("everybody", type="fanout")
    producer = connect().Producer()
    early = Consuming(connect(), kombu.Queue("early", exchange))
    producer.publish("first", exchange=exchange)
    late = Consuming(connect(), kombu.Queue("late", exchange))
    producer.publish("second", exchange=exchange)
    assert late.until(1) == ["second"]
    assert early.until(2) == ["first", "second"]


def test_queues_of_one_process_are_gone_with_its_connection(connection: kombu.Connection, popmq_broker: Broker) -> None:
    reply = kombu.Queue("reply-1", kombu.Exchange("replies", type="direct"), routing_key="1", auto_delete=True)
    consuming = Consuming(connection, reply)
    connection.Producer().publish("yes", exchange="replies", routing_key="1")
    connection.Producer().publish("also", routing_key="reply-1")  # to the queue itself
    assert sorted(consuming.until(2)) == ["also", "yes"]
    connection.release()
    assert [group.name for group in popmq_broker.client().groups.list()] == []


def test_a_purge_removes_what_waits_and_leaves_what_is_handled(
    connection: kombu.Connection, popmq_broker: Broker
) -> None:
    publish(connection, "held")
    held = Consuming(connection, ack=False)
    held.channel.basic_qos(0, 1, False)
    held.until(1)
    publish(connection, "waits")
    publish(connection, "late", headers={"eta": (datetime.now(UTC) + timedelta(days=1)).isoformat()})
    assert held.channel.queue_purge("jobs") == 2
    assert (numbers(popmq_broker).in_flight, numbers(popmq_broker).ready, numbers(popmq_broker).delayed) == (1, 0, 0)


def test_a_consumer_goes_on_when_the_broker_is_back(connection: kombu.Connection, popmq_broker: Broker) -> None:
    publish(connection, "first")
    consuming = Consuming(connection, ack=False)
    consuming.until(1)
    popmq_broker.restart()
    consuming.messages[0].ack()  # its lease outlived the restart
    publish(connection, "second")
    assert consuming.until(2) == ["first", "second"]
    consuming.messages[1].ack()
    connection.release()
    assert (numbers(popmq_broker).acked, numbers(popmq_broker).retry) == (2, 0)


def test_a_queue_that_is_deleted_under_its_consumer_is_an_error_after_which_celery_connects_again(
    connection: kombu.Connection, popmq_broker: Broker
) -> None:
    publish(connection, "first")
    consuming = Consuming(connection)
    consuming.until(1)
    popmq_broker.client().topics.delete("jobs")
    with pytest.raises(connection.connection_errors, match="jobs"):
        connection.drain_events(timeout=20)
    publish(connection, "second")
    assert Consuming(connection).until(1) == ["second"]


def test_a_message_for_no_queue_is_told(connection: kombu.Connection) -> None:
    kombu.Queue("reply", auto_delete=True)(connection).declare()  # its messages are in the topic of all such queues
    with pytest.warns(match="there is no queue 'nowhere'"):
        connection.Producer().publish("lost", routing_key="nowhere")


@pytest.mark.parametrize("said", ["", "no JSON", "[]", "{}", '{"headers": 1, "properties": {}}'])
def test_a_message_of_another_client_has_no_headers_whatever_its_properties_say(
    connection: kombu.Connection, popmq_broker: Broker, said: str
) -> None:
    kombu.Queue("jobs")(connection).declare()
    popmq_broker.client().send("jobs", popmq.Message("of another client", properties={"kombu": said} if said else {}))
    consuming = Consuming(connection)
    assert consuming.until(1) == ["of another client"]
    assert consuming.messages[0].headers == {}


def test_a_broker_that_is_away_is_a_connection_error(connect: Connect) -> None:
    connection = connect("popmq://127.0.0.1:1")
    connection.connect_timeout = 0.2
    with pytest.raises(TryLater) as raised:
        connection.connect()
    assert isinstance(raised.value, connection.connection_errors)


def test_a_worker_that_was_told_to_stop_does_not_wait_for_a_broker_that_is_away(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its heartbeat connects again and again, in the loop that would else see that it is to stop."""
    connection = connect("popmq://127.0.0.1:1")
    connection.connect_timeout = 0.2
    monkeypatch.setattr("celery.worker.state.should_stop", 0)
    with pytest.raises(WorkerShutdown):
        connection.connect()
    with ThreadPoolExecutor(1) as tasks, pytest.raises(TryLater):  # one that a task sends is an error of the task
        tasks.submit(connection.connect).result()


@pytest.mark.parametrize(("delivery_mode", "timeout"), [("transient", TRANSIENT_S), ("persistent", None)])
def test_events_and_remote_commands_wait_for_the_broker_for_a_shorter_time(
    connection: kombu.Connection, monkeypatch: pytest.MonkeyPatch, delivery_mode: str, timeout: float | None
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(popmq.Client, "send", lambda *_, timeout: given.append(timeout))
    connection.Producer().publish("up", exchange="celeryev", routing_key="worker", delivery_mode=delivery_mode)
    assert given == [timeout]


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("", {"invisble_time": "5s"}, "invisble_time.*give one of .*invisible_time"),
        ("", {"invisible_time": "half an hour"}, "half an hour"),
        ("popmq://127.0.0.1:8081/other", {}, "virtual host 'other'"),
    ],
)
def test_wrong_settings_are_refused_when_it_connects(
    connect: Connect, url: str, options: dict[str, Any], text: str
) -> None:
    connection = connect(url, **options)
    with pytest.raises(InvalidField, match=text) as raised:
        connection.connect()
    assert not isinstance(raised.value, connection.connection_errors)


def test_an_ack_after_the_connection_was_closed_is_a_connection_error(connection: kombu.Connection) -> None:
    publish(connection, "job")
    consuming = Consuming(connection, ack=False)
    consuming.until(1)
    opened = connection.transport.reader
    opened.close()
    with pytest.raises(connection.connection_errors, match="closed"):
        consuming.messages[0].ack()


def test_a_program_that_ends_without_closing_its_connection_gives_back_what_it_holds(
    connection: kombu.Connection, popmq_broker: Broker
) -> None:
    for number in range(2):
        publish(connection, number)
    consuming = Consuming(connection, ack=False)
    consuming.channel.basic_qos(0, 1, False)
    consuming.until(1)
    opened = connection.transport.reader
    opened.close()  # by atexit
    found = numbers(popmq_broker)
    assert (found.in_flight, found.ready + found.retry) == (0, 2)
    assert asyncio.all_tasks(opened._loop) == set()  # of which asyncio would complain


def test_acks_may_come_from_any_thread(connection: kombu.Connection, popmq_broker: Broker) -> None:
    for number in range(20):
        publish(connection, number)
    consuming = Consuming(connection, ack=False)
    consuming.until(20)
    threads = [threading.Thread(target=message.ack) for message in consuming.messages]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    connection.release()
    assert numbers(popmq_broker).acked == 20


def test_an_event_loop_acks_each_task_before_it_gets_the_next(
    connection: kombu.Connection, popmq_broker: Broker
) -> None:
    """Celery's workers leave acks to the loop's next turn: a kill must not find those of several tasks there."""
    for number in range(4):
        publish(connection, number)
    hub, unacked, most = Hub(), list[Any](), list[int]()

    def take(body: Any, message: Any) -> None:
        unacked.append(message)
        most.append(len(unacked))
        hub.call_soon(lambda: unacked.pop().ack())

    connection.transport.register_with_event_loop(connection.connection, hub)
    channel = connection.channel()
    kombu.Consumer(channel, [kombu.Queue("jobs")], callbacks=[take]).consume()
    while (numbers(popmq_broker).in_flight or 0) < 4:  # all have arrived before the first one is taken
        pass
    turns = hub.create_loop()
    while len(most) < 4:
        next(turns)
    connection.transport.unregister_from_event_loop(connection.connection, hub)
    hub.close()
    assert most == [1, 1, 1, 1]


def test_one_call_hands_over_all_messages_that_have_arrived(connection: kombu.Connection, popmq_broker: Broker) -> None:
    for number in range(3):
        publish(connection, number)
    consuming = Consuming(connection)
    consuming.consumer.consume()
    while (numbers(popmq_broker).in_flight or 0) < 3:
        pass
    connection.drain_events(timeout=20)
    assert consuming.got == [0, 1, 2]
