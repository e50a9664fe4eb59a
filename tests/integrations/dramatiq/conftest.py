"""A broker of Dramatiq on a real PopMQ whose clock the tests move, and workers of it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import dramatiq
import pytest
from dramatiq.results import Results

from popmq.testing import Broker
from popmq_integrations.dramatiq import PopMQBackend, PopMQBroker

Working = Callable[[], AbstractContextManager[dramatiq.Worker]]


@pytest.fixture
def queues(popmq_broker: Broker) -> Iterator[PopMQBroker]:
    """A broker with results."""
    broker = PopMQBroker(popmq_broker.endpoint, clock=popmq_broker.clock, max_priority=9)
    backend = PopMQBackend(popmq_broker.endpoint)
    broker.add_middleware(Results(backend=backend))
    dramatiq.set_broker(broker)
    yield broker
    broker.close()
    backend.close()


@pytest.fixture
def working(queues: PopMQBroker) -> Working:
    """A worker that runs while the block does."""

    @contextmanager
    def run() -> Iterator[dramatiq.Worker]:
        worker = dramatiq.Worker(queues, worker_threads=2, worker_timeout=20)
        worker.start()
        try:
            yield worker
        finally:
            worker.stop()

    return run
