"""The worker of a Django project, as `popmq work popmq_integrations.django.working:worker` runs it.

`manage.py popmq_worker` starts that with its own options in POPMQ_DJANGO_WORKER. A task runs in one of the threads of
its queue; a coroutine in an event loop of that thread.

    message ─▶ task_started ─▶ task ─┬─ returns ─▶ task_finished ─▶ ack with the result, in one commit
                                     ├─ raises, attempts are left ─▶ released with the backoff of the group
                                     └─ raises ─▶ task_finished ─▶ dead letter, with the traceback as its reason
"""

import json
import os
from functools import partial
from typing import Any

import django
from django.db import close_old_connections

import popmq
from popmq_integrations.django import records
from popmq_integrations.django.backend import PopMQBackend
from popmq_integrations.django.options import decides
from popmq_integrations.django.seam import (
    TaskContext,
    TaskResultStatus,
    normalize_json,
    task_backends,
    task_finished,
    task_started,
)

#: The environment variable with the options of the command, as JSON.
GIVEN = "POPMQ_DJANGO_WORKER"


class Connections(popmq.Middleware):
    """What Django does around each request; and the answers to the broker's check-backs, while the worker runs."""

    def __init__(self, backend: PopMQBackend) -> None:
        self._backend = backend

    def started(self, worker: popmq.Worker) -> None:
        """Creates what is missing, and answers for processes that died in a transaction."""
        from django.db import connections

        topics = [self._backend.topic_of(queue) for queue in sorted(self._backend.queues)]
        topics = sorted({*topics, *(handler.topic for handler in worker.handlers)})
        self._backend.process.declare(*topics)
        database = connections[self._backend.settings.database]
        if decides(database):
            outbox = self._backend.process.outbox
            outbox.answer(*topics)
            with outbox(database):  # makes its table, which no transaction then has to do
                pass

    def before(self, delivery: popmq.Delivery) -> None:
        """Closes connections to databases that are too old or broken."""
        close_old_connections()

    def after(self, delivery: popmq.Delivery, result: Any) -> None:
        """The same."""
        close_old_connections()

    def failed(self, delivery: popmq.Delivery, error: Exception) -> None:
        """The same."""
        close_old_connections()


def run(backend: PopMQBackend, worker_id: str, delivery: popmq.Delivery) -> popmq.Result:
    """Runs the task of one message. A task that this code does not have yet is tried again: others may deploy it."""
    try:
        result = records.read(delivery, backend.queue_of(delivery.topic), backend.alias)
    except ValueError as error:
        raise popmq.Reject(str(error)) from error
    begun = records.now()
    records.change(result, started_at=begun, status=TaskResultStatus.RUNNING)
    if delivery.attempt > 1:
        records.add_history(result, backend.history(result.id))
    earlier = [*result.worker_ids, *[""] * delivery.attempt][: delivery.attempt - 1]
    records.change(result, worker_ids=[*earlier, worker_id], last_attempted_at=begun)
    task_started.send(type(backend), task_result=result)
    try:
        context = [TaskContext(task_result=result)] if result.task.takes_context else []
        value = normalize_json(result.task.call(*context, *result.args, **result.kwargs))
        records.change(result, _return_value=value, finished_at=records.now(), status=TaskResultStatus.SUCCESSFUL)
        kept = records.stored(result)
    except BaseException as error:  # SystemExit of a task, too, as Django's own backends do
        _failed(backend, result, delivery, error)
        raise AssertionError from None
    task_finished.send(type(backend), task_result=result)
    return kept


def _failed(backend: PopMQBackend, result: Any, delivery: popmq.Delivery, error: BaseException) -> None:
    """Raises RetryLater or Reject, with the traceback."""
    raised = records.error_raised(error)
    records.change(result, errors=[*result.errors, raised], _return_value=None, finished_at=None)
    if delivery.attempt < backend.settings.max_attempts:
        raise popmq.RetryLater(reason=records.reason_of(raised)) from error
    records.change(result, finished_at=records.now(), status=TaskResultStatus.FAILED)
    task_finished.send(type(backend), task_result=result)
    raise popmq.Reject(records.reason_of(raised)) from error


def worker_of(
    alias: str = "default",
    queues: list[str] | None = None,
    concurrency: int = 8,
) -> popmq.Worker:
    """A worker for the queues of a backend: all of TASKS, or these. Raises ValueError for what is not in TASKS."""
    backend = task_backends[alias]
    if not isinstance(backend, PopMQBackend):
        raise ValueError(f"TASKS[{alias!r}] is {type(backend).__name__}: popmq_worker runs tasks of PopMQBackend")
    if unknown := set(queues or ()) - backend.queues if backend.queues else set():
        raise ValueError(f"TASKS[{alias!r}] has no queue {sorted(unknown)[0]!r}: it has {sorted(backend.queues)}")
    served = queues or sorted(backend.queues)
    if not served:
        raise ValueError(f"TASKS[{alias!r}] has no QUEUES: name those of this worker with --queue")
    name = records.worker_id()
    worker = popmq.Worker(**{**backend.connection, "client_id": name}, middleware=[Connections(backend)])
    for queue in served:
        handle = worker.on(backend.topic_of(queue), group=backend.settings.group, concurrency=concurrency)
        handle(_named(partial(run, backend, name), f"queue {queue}"))
    return worker


def _named(function: Any, name: str) -> Any:
    function.__qualname__ = name
    return function


def _of_this_process() -> popmq.Worker:
    django.setup()
    return worker_of(**json.loads(os.environ.get(GIVEN, "{}")))


def __getattr__(name: str) -> Any:
    """`worker` is made when it is asked for, with DJANGO_SETTINGS_MODULE in the environment."""
    if name == "worker":
        return _of_this_process()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
