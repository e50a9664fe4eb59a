"""The worker of a Django project, as `popmq work popmq_integrations.django.working:worker` runs it.

`manage.py popmq_worker` starts that with its own options in POPMQ_DJANGO_WORKER. A task runs in one of the threads of
its queue; a coroutine in an event loop of that thread.

    message ─▶ task_started ─▶ task ─┬─ returns ─▶ task_finished ─▶ ack with the result, in one commit
                                     ├─ raises, attempts are left ─▶ released with the backoff of the group
                                     └─ raises ─▶ task_finished ─▶ dead letter, with the traceback as its reason
"""

import asyncio
import contextlib
import json
import os
from functools import partial
from typing import Any

import django
from django.db import close_old_connections, connections

import popmq
from popmq import errors
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


class Preparing(popmq.Middleware):
    """Creates what is missing; answers the broker for processes that died in a transaction while the worker runs."""

    def __init__(self, backend: PopMQBackend) -> None:
        self._backend = backend

    async def started(self, worker: popmq.Worker) -> None:
        """In a thread: Django uses no database in a thread that runs an event loop."""
        await asyncio.to_thread(self._prepare, [handler.topic for handler in worker.handlers])

    def _prepare(self, handled: list[str]) -> None:
        process, alias = self._backend.process, self._backend.settings.database
        topics = sorted({*handled, *map(self._backend.topic_of, self._backend.queues)})
        with contextlib.suppress(errors.PermissionDenied):  # an operator has created them; else handling them fails
            process.declare(*topics)
        if decides(connections[alias]):
            process.prepare(alias)
            process.outbox.answer(*topics)
        connections.close_all()


def handle(backend: PopMQBackend, worker_id: str, delivery: popmq.Delivery) -> popmq.Result:
    """Runs the task of one message in a thread of the worker, whose connections it treats as requests of Django do."""
    close_old_connections()
    try:
        return _run(backend, worker_id, delivery)
    finally:
        close_old_connections()


def _run(backend: PopMQBackend, worker_id: str, delivery: popmq.Delivery) -> popmq.Result:
    """A task that this code does not have yet is tried again: others may deploy it."""
    try:
        result = records.read(delivery, backend.queue_of(delivery.topic), backend.alias)
    except ValueError as error:
        raise popmq.Reject(str(error)) from error
    begun = records.now()
    records.change(result, started_at=begun, status=TaskResultStatus.RUNNING)
    failures = 0
    if delivery.attempt > 1:
        events = backend.history(result.id)
        records.add_history(result, events)
        failures = len(result.errors) if events else delivery.attempt - 1
    earlier = [*result.worker_ids, *[""] * delivery.attempt][: delivery.attempt - 1]
    records.change(result, worker_ids=[*earlier, worker_id], last_attempted_at=begun)
    # A receiver that raises is logged by Django: it does not decide whether the task runs, or runs again.
    task_started.send_robust(type(backend), task_result=result)
    try:
        context = [TaskContext(task_result=result)] if result.task.takes_context else []
        value = normalize_json(result.task.call(*context, *result.args, **result.kwargs))
        records.change(result, _return_value=value, finished_at=records.now(), status=TaskResultStatus.SUCCESSFUL)
        kept = records.stored(result)
    except BaseException as error:  # SystemExit of a task, too, as Django's own backends do
        _failed(backend, result, failures + 1, error)
        raise AssertionError from None
    task_finished.send_robust(type(backend), task_result=result)
    return kept


def _failed(backend: PopMQBackend, result: Any, failures: int, error: BaseException) -> None:
    """Raises RetryLater or Reject, with the traceback. `failures`: how often the task has raised by now."""
    raised = records.error_raised(error)
    records.change(result, errors=[*result.errors, raised], _return_value=None, finished_at=None)
    if failures < backend.settings.max_attempts:
        raise popmq.RetryLater(reason=records.reason_of(raised)) from error
    records.change(result, finished_at=records.now(), status=TaskResultStatus.FAILED)
    task_finished.send_robust(type(backend), task_result=result)
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
    worker = popmq.Worker(**{**backend.connection, "client_id": name}, middleware=[Preparing(backend)])
    for queue in served:
        register = worker.on(backend.topic_of(queue), group=backend.settings.group, concurrency=concurrency)
        register(_named(partial(handle, backend, name), f"queue {queue}"))
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
