"""The fixtures of Dramatiq's tests, with PopMQ in place of Redis, RabbitMQ and the broker in memory.

Loaded by pytest as a plugin, and imported by the tests as their `common`.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dramatiq
import pytest
from dramatiq import Worker
from dramatiq.errors import QueueNotFound
from dramatiq.rate_limits import backends as rate_limits
from dramatiq.results import backends as results

import popmq.testing
from popmq_integrations.dramatiq import PopMQBackend, PopMQBroker

RABBITMQ_CREDENTIALS, RABBITMQ_USERNAME, RABBITMQ_PASSWORD = None, "", ""
skip_in_ci = skip_on_windows = skip_on_pypy = skip_with_gevent = lambda test: test
skip_without_gevent = pytest.mark.skip(reason="without gevent")
skip_unless_rabbit_mq = pytest.mark.skip(reason="about addresses of RabbitMQ")

#: Tests that look into the broker that they are named after; the others say only what any broker has to do.
_REDIS = "reads or calls Redis itself; tests/integrations/dramatiq has the same claim"
_RABBITMQ = "about connections and channels of RabbitMQ"
_MEMORY = "looks into the queues of the broker in memory"
INSIDE = {
    **dict.fromkeys(
        (
            "test_redis_unacked_messages_can_be_requeued",
            "test_redis_messages_can_be_dead_lettered",
            "test_redis_dead_lettered_messages_are_cleaned_up",
            "test_redis_messages_belonging_to_missing_actors_are_rejected",
            "test_redis_requeues_unhandled_messages_on_shutdown",
            "test_redis_requeues_unhandled_delay_messages_on_shutdown",
            "test_redis_broker_can_connect_via_url",
            "test_redis_broker_can_connect_via_client",
            "test_redis_consumer_ack_can_retry_on_connection_error",
            "test_redis_consumer_nack_can_retry_on_connection_error",
            "test_redis_join_race_condition",
        ),
        _REDIS,
    ),
    **dict.fromkeys(
        (
            "test_rabbitmq_broker_stops_retrying_declaring_queues_when_max_attempts_reached",
            "test_rabbitmq_broker_reconnects_after_enqueue_failure",
            "test_rabbitmq_workers_handle_rabbit_failures_gracefully",
            "test_rabbitmq_connections_can_be_deleted_multiple_times",
            "test_rabbitmq_channels_can_be_deleted_multiple_times",
            "test_rabbitmq_broker_retries_declaring_queues_when_connection_related_errors_occur",
            "test_rabbitmq_broker_consuming_messages_re_declares_queues_when_declared_queue_disappears",
            "test_rabbitmq_broker_enqueueing_message_re_declares_queues_when_declared_queue_disappears",
            "test_can_instantiate_brokers_without_middleware",
        ),
        _RABBITMQ,
    ),
    "test_rabbitmq_consumers_ignore_unknown_messages_in_ack_and_nack": (
        "consumes a queue that was not declared, which PopMQBroker refuses as the interface says"
    ),
    **dict.fromkeys(("test_actors_can_be_sent_messages", "test_worker_handles_none_eta"), _MEMORY),
    "test_worker_handles_non_numeric_eta_and_logs_warning": _MEMORY,
    **dict.fromkeys(
        ("test_workers_process_messages_in_order", "test_groups_execute_inner_groups"),
        "gives a broker in memory a millisecond, or half a second: on a busy machine there is no such promise",
    ),
    "test_actors_results_are_backwards_compatible": "stores by the key of a key-value store",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = getattr(item, "originalname", item.name)
        if name in INSIDE:
            item.add_marker(pytest.mark.skip(reason=INSIDE[name]))


@contextmanager
def worker(*args: Any, **options: Any) -> Iterator[Worker]:
    """As Dramatiq's own tests have it."""
    started = Worker(*args, **options)
    started.start()
    try:
        yield started
    finally:
        started.stop()


class Tested(PopMQBroker):
    """Takes what tests pass to the brokers that it stands for."""

    #: Whether `join` raises what an actor raised, as that of the broker in memory does.
    fail_fast_default = False
    failures: list[tuple[type[BaseException], tuple[Any, ...]]]

    def emit_before(self, signal: str, *args: Any, **kwargs: Any) -> None:
        if signal == "nack":
            error = args[0]._exception or Exception("failed")
            self.failures.append((type(error), error.args))  # not itself: one test counts the objects that are left
        super().emit_before(signal, *args, **kwargs)

    @property
    def dead_letters(self) -> list[Any]:
        """As the broker in memory has them."""
        found = [self.client.messages.browse(f"%DLQ%{self.topic_of(name)}").deliveries for name in self.queues]
        return [dramatiq.Message.decode(each.body) for page in found for each in page]

    def join(self, queue_name: str, *, min_successes: int = 1, fail_fast: bool | None = None, **options: Any) -> None:
        """`min_successes`: how often RabbitMQ has to say that nothing is left."""
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        super().join(queue_name, **options)
        if (self.fail_fast_default if fail_fast is None else fail_fast) and self.failures:
            kind, values = self.failures[0]
            raise kind(*values)


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    with popmq.testing.broker() as broker:
        yield broker.endpoint


@pytest.fixture
def popmq_for_dramatiq(endpoint: str) -> Iterator[Tested]:
    broker = Tested(endpoint, namespace=f"test-{uuid.uuid4().hex[:8]}", max_priority=10)
    broker.failures = []
    broker.emit_after("process_boot")
    dramatiq.set_broker(broker)
    yield broker
    broker.close()


@pytest.fixture
def popmq_worker(popmq_for_dramatiq: Tested) -> Iterator[Worker]:
    with worker(popmq_for_dramatiq, worker_threads=32) as started:
        yield started


@pytest.fixture
def redis_broker(popmq_for_dramatiq: Tested) -> Tested:
    return popmq_for_dramatiq


@pytest.fixture
def rabbitmq_broker(popmq_for_dramatiq: Tested) -> Tested:
    return popmq_for_dramatiq


@pytest.fixture
def stub_broker(popmq_for_dramatiq: Tested) -> Tested:
    popmq_for_dramatiq.fail_fast_default = True
    return popmq_for_dramatiq


@pytest.fixture
def redis_worker(popmq_worker: Worker) -> Worker:
    return popmq_worker


@pytest.fixture
def rabbitmq_worker(popmq_worker: Worker) -> Worker:
    return popmq_worker


@pytest.fixture
def stub_worker(stub_broker: Tested) -> Iterator[Worker]:
    with worker(stub_broker, worker_timeout=100, worker_threads=32) as started:
        yield started


@pytest.fixture
def result_backend(endpoint: str, popmq_for_dramatiq: Tested) -> PopMQBackend:
    return PopMQBackend(endpoint, namespace=popmq_for_dramatiq.namespace)


@pytest.fixture
def redis_result_backend(result_backend: PopMQBackend) -> PopMQBackend:
    return result_backend


@pytest.fixture
def result_backends(result_backend: PopMQBackend) -> dict[str, Any]:
    return {"redis": result_backend, "stub": results.StubBackend()}


@pytest.fixture
def stub_result_backend() -> Any:
    return results.StubBackend()


@pytest.fixture
def rate_limiter_backend() -> Any:
    return rate_limits.StubBackend()


@pytest.fixture
def stub_rate_limiter_backend() -> Any:
    return rate_limits.StubBackend()


@pytest.fixture
def rate_limiter_backends() -> dict[str, Any]:
    return {"stub": rate_limits.StubBackend()}
