"""One way to send tasks, to run them and to ask for their results, for each framework on each broker.

A worker calls `work` in a process that was forked for it, and returns never; a producer is one process.
"""

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Protocol

#: Seconds for which a task of a worker that was killed stays with it: as short as both brokers allow.
LEASE_S = 2


class Adapter(Protocol):
    """A framework on a broker."""

    delays: bool  # whether it has tasks that run later

    def send(self, number: int, due: float, delay: float) -> Any:
        """Sends a task; returns what `result` takes. Raises what the framework raises if it may not be stored."""

    def result(self, sent: Any) -> bool:
        """Whether the result of a task is there."""

    def work(self, prefetch: int) -> None:
        """Runs tasks until the process is killed."""


def note(number: int, due: float) -> None:
    """The body of all tasks: works for a while, then appends its run to the log, in one write."""
    begun = time.time()
    threading.Event().wait(random.uniform(0.0, 0.02))  # the task's work
    line = f"{number} {due!r} {begun!r} {time.time()!r} {os.getpid()}\n"
    out = os.open(os.environ["POPMQ_CAMPAIGN_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(out, line.encode())
    finally:
        os.close(out)


class Dramatiq:
    """The broker and the backend are made by the caller: PopMQ's or Redis's."""

    delays = True

    def __init__(self, broker: Any, backend: Any) -> None:
        import dramatiq
        from dramatiq.results import Results

        self._broker = broker
        broker.add_middleware(Results(backend=backend, result_ttl=3_600_000))
        dramatiq.set_broker(broker)

        @dramatiq.actor(store_results=True, max_retries=20, min_backoff=100, max_backoff=1000)
        def campaign(number: int, due: float) -> int:
            note(number, due)
            return number

        self._actor = campaign

    def send(self, number: int, due: float, delay: float) -> Any:
        return self._actor.send_with_options(args=(number, due), delay=round(delay * 1000) if delay else None)

    def result(self, sent: Any) -> bool:
        from dramatiq.results import ResultError

        try:
            return sent.get_result() is not None
        except ResultError:
            return False

    def work(self, prefetch: int) -> None:
        import dramatiq

        worker = dramatiq.Worker(self._broker, worker_threads=4)
        worker.queue_prefetch = prefetch
        worker.start()
        while True:
            time.sleep(3600)


class Taskiq:
    """The same for taskiq. `delays`: whether its broker knows the label `delay`."""

    def __init__(self, broker: Any, delays: bool) -> None:
        self._broker = broker
        self.delays = delays
        self._loop = asyncio.new_event_loop()
        self._started = False

        @broker.task(task_name="campaign")
        async def campaign(number: int, due: float) -> int:
            await asyncio.to_thread(note, number, due)
            return number

        self._task = campaign

    def _run(self, doing: Any) -> Any:
        if not self._started:
            self._started = True
            self._loop.run_until_complete(self._broker.startup())
        return self._loop.run_until_complete(doing)

    def send(self, number: int, due: float, delay: float) -> Any:
        kicker = self._task.kicker()
        return self._run((kicker.with_labels(delay=delay) if delay else kicker).kiq(number, due))

    def result(self, sent: Any) -> bool:
        return bool(self._run(sent.is_ready()))

    def work(self, prefetch: int) -> None:
        from taskiq.api import run_receiver_task

        self._broker.is_worker_process = True
        asyncio.run(run_receiver_task(self._broker, max_async_tasks=4, max_prefetch=prefetch, run_startup=True))


class Celery:
    """Celery's worker runs tasks in the process itself (the pool `solo`)."""

    delays = True

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        import celery

        self._app = app = celery.Celery("campaign", broker=url, backend=url)
        app.conf.update(
            broker_transport_options=options,
            task_acks_late=True,
            task_reject_on_worker_lost=True,
            broker_connection_retry_on_startup=True,
            worker_hijack_root_logger=False,
        )

        @app.task(name="campaign")
        def campaign(number: int, due: float) -> int:
            note(number, due)
            return number

        self._task = campaign

    def send(self, number: int, due: float, delay: float) -> Any:
        return self._task.apply_async((number, due), countdown=delay or None)

    def result(self, sent: Any) -> bool:
        return bool(sent.ready())

    def work(self, prefetch: int) -> None:
        self._app.conf.worker_prefetch_multiplier = prefetch
        self._app.worker_main(["worker", "--pool", "solo", "--loglevel", "ERROR", "--without-heartbeat"])


class Django:
    """Django's tasks, which have no backend for Redis."""

    delays = True

    def __init__(self, endpoint: str) -> None:
        from tests.integrations.django import project

        project.configure()
        from django.test import override_settings

        backend = {"BACKEND": "popmq_integrations.django.PopMQBackend", "OPTIONS": {"endpoint": endpoint}}
        override_settings(TASKS={"default": backend}).enable()
        self._task = import_module("tests.integrations.campaign.django_task").campaign
        process = self._task.get_backend().process
        process.declare("django-default")
        process.client.groups.update("django", invisible=LEASE_S, max_attempts=1000)

    def send(self, number: int, due: float, delay: float) -> Any:
        run_after = datetime.fromtimestamp(due, UTC) if delay else None
        return self._task.using(run_after=run_after).enqueue(number, due).id

    def result(self, sent: Any) -> bool:
        return bool(self._task.get_result(sent).status == "SUCCESSFUL")

    def work(self, prefetch: int) -> None:
        from popmq_integrations.django.working import worker_of

        worker_of(concurrency=4).run()


def _dramatiq_popmq(endpoint: str) -> Adapter:
    from popmq_integrations.dramatiq import PopMQBackend, PopMQBroker

    broker = PopMQBroker(endpoint, invisible_time=LEASE_S, max_attempts=1000)
    return Dramatiq(broker, PopMQBackend(endpoint))


def _dramatiq_redis(endpoint: str) -> Adapter:
    redis_broker = import_module("dramatiq.brokers.redis")
    redis_results = import_module("dramatiq.results.backends.redis")
    url = f"redis://{endpoint}"
    # Maintenance, which gives back what killed workers had, by one command in ten instead of one in a thousand.
    broker = redis_broker.RedisBroker(url=url, heartbeat_timeout=LEASE_S * 1000, maintenance_chance=100_000)
    return Dramatiq(broker, redis_results.RedisBackend(url=url))


def _taskiq_popmq(endpoint: str) -> Adapter:
    from popmq_integrations.taskiq import PopMQBroker, PopMQResultBackend

    broker = PopMQBroker(endpoint, invisible_time=LEASE_S, max_attempts=1000)
    return Taskiq(broker.with_result_backend(PopMQResultBackend(endpoint)), delays=True)


def _taskiq_redis(endpoint: str) -> Adapter:
    taskiq_redis = import_module("taskiq_redis")
    url = f"redis://{endpoint}"
    broker = taskiq_redis.RedisStreamBroker(
        url, consumer_id="0", idle_timeout=LEASE_S * 1000, unacknowledged_lock_timeout=LEASE_S
    )
    return Taskiq(broker.with_result_backend(taskiq_redis.RedisAsyncResultBackend(url)), delays=False)


def _celery_popmq(endpoint: str) -> Adapter:
    import_module("popmq_integrations.celery")  # kombu knows popmq://
    return Celery(f"popmq://{endpoint}", {"invisible_time": f"{LEASE_S}s", "max_attempts": 1000})


def _celery_redis(endpoint: str) -> Adapter:
    return Celery(f"redis://{endpoint}/0", {"visibility_timeout": LEASE_S})


#: (framework, broker) → what makes its adapter for an endpoint.
ADAPTERS: dict[tuple[str, str], Callable[[str], Adapter]] = {
    ("dramatiq", "popmq"): _dramatiq_popmq,
    ("dramatiq", "redis"): _dramatiq_redis,
    ("taskiq", "popmq"): _taskiq_popmq,
    ("taskiq", "redis"): _taskiq_redis,
    ("celery", "popmq"): _celery_popmq,
    ("celery", "redis"): _celery_redis,
    ("django", "popmq"): Django,
}
