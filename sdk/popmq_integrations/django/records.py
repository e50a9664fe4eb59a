"""Tasks as messages, and what became of them as results of Django.

message    id the result's, key the task's path, priority, born when it was enqueued, due at its run_after
           {"task": "shop.tasks.bill", "args": [7], "kwargs": {}, "run_after": null}
result     of a task that returned, with its ack
           {"return_value": 3, "started_at": "…", "finished_at": "…", "worker_ids": ["…"], "errors": [{…}]}
reason     of an attempt that raised: its traceback, the exception's class in the first line
           Traceback of builtins.ValueError (most recent call last): …
"""

import json
import re
import socket
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from os import getpid, urandom
from traceback import format_exception
from typing import Any
from zlib import crc32

from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

import popmq
from popmq.outcome import RESULT_BYTES_MAX
from popmq_integrations.django.processes import PRIORITY_OFFSET
from popmq_integrations.django.seam import Task, TaskError, TaskResult, TaskResultStatus

#: Bytes of a key, and of a reason.
KEY_MAX, REASON_MAX = 128, 4096
_HEAD = "Traceback (most recent call last):\n"
_OF = re.compile(r"Traceback of ([\w.]+) \(most recent call last\):\n")
#: Frames between the worker and the function of a task: nothing about it.
_BETWEEN = ("popmq_integrations.django.", "django.tasks.", "django_tasks.", "asgiref.")
#: What ends an attempt of a group, with a reason.
_FAILURES = ("released", "rejected", "dead")


def new_id(queue: str) -> str:
    """Of a result: 32 hexadecimal digits, of which Django allows 64. The last ones tell the queue."""
    return urandom(12).hex() + _mark(queue)


def ordered(queues: Iterable[str], id: str) -> list[str]:
    """Where to look for a result: first in the queue that its id tells of."""
    return sorted(queues, key=lambda queue: (not id.endswith(_mark(queue)), queue))


def _mark(queue: str) -> str:
    return f"{crc32(queue.encode()):08x}"


def worker_id() -> str:
    """Of this process. It is the id of the worker's client, so that the broker's history names the same."""
    return f"{socket.gethostname()[:40]}-{getpid()}-{urandom(4).hex()}"


def now() -> datetime:
    """To the millisecond, as the broker keeps times."""
    return _local(round(datetime.now(UTC).timestamp() * 1000))


def result_of(task: Any, id: str, args: Any, kwargs: Any, alias: str, enqueued_at: datetime) -> Any:
    """The result of a task that no worker has begun. Raises TypeError for arguments that JSON does not have."""
    return TaskResult(
        task=task,
        id=id,
        status=TaskResultStatus.READY,
        enqueued_at=enqueued_at,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=[],
        worker_ids=[],
    )


def change(result: Any, **values: Any) -> None:
    """Sets fields of a result, which is frozen for others."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def message_of(result: Any) -> popmq.Message:
    """The message of a result that is enqueued."""
    task = result.task
    run_after, due = task.run_after, task.run_after
    if due is not None and timezone.is_naive(due):
        due = timezone.make_aware(due)
    path = task.module_path
    return popmq.Message.json(
        {"task": path, "args": result.args, "kwargs": result.kwargs, "run_after": run_after and run_after.isoformat()},
        message_id=result.id,
        key=path if len(path.encode()) <= KEY_MAX else "",
        priority=task.priority + PRIORITY_OFFSET,
        deliver_at=due,
        born_ms=round(_aware(result.enqueued_at).timestamp() * 1000),
    )


def read(message: Any, queue: str, alias: str) -> Any:
    """The result of a stored message, as `result_of`. Raises ValueError for what is no message of a task; ImportError
    and AttributeError for a task that this code does not have.
    """
    try:
        told = json.loads(message.body)
        path, args, kwargs, run_after = told["task"], told["args"], told["kwargs"], told["run_after"]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"message {message.message_id!r} is not of a task: {error!r}") from error
    task = import_string(path)
    if not isinstance(task, Task):
        raise ImportError(f"{path} is no task any more: decorate it with @task")
    changes = {"priority": message.priority - PRIORITY_OFFSET, "queue_name": queue, "backend": alias}
    made = task.using(**changes, run_after=run_after and datetime.fromisoformat(run_after))
    return result_of(made, message.message_id, args, kwargs, alias, _local(message.born_ms))


def add_history(result: Any, events: Sequence[popmq.LifeEvent]) -> None:
    """The attempts so far: which workers, when, and what they raised."""
    begun = [event for event in events if event.what == "popped"]
    if not begun:
        return
    failed = [event for event in events if event.what in _FAILURES and event.reason]
    if len(failed) > 1 and (failed[-1].what, failed[-2].what) == ("dead", "rejected"):  # two events of one attempt
        failed.pop()
    change(
        result,
        started_at=max(_local(begun[0].time_ms), result.enqueued_at),
        last_attempted_at=max(_local(begun[-1].time_ms), result.enqueued_at),
        worker_ids=[event.client_id for event in begun],
        errors=[error_of(event.reason) for event in failed],
    )


def add_end(result: Any, life: popmq.GroupLife) -> None:
    """The end of a task that failed, or whose message was never run."""
    if not result.errors:
        change(result, errors=[error_of(life.explanation)])
    change(result, finished_at=max(_local(life.events[-1].time_ms), result.enqueued_at))


def stored(result: Any) -> popmq.Result:
    """What is kept with the ack. Raises ValueError for what is too large."""
    kept = popmq.Result(
        {
            "return_value": result._return_value,
            "started_at": result.started_at,
            "last_attempted_at": result.last_attempted_at,
            "finished_at": result.finished_at,
            "worker_ids": result.worker_ids,
            "errors": [[error.exception_class_path, error.traceback] for error in result.errors],
        }
    )
    if len(kept.body) > RESULT_BYTES_MAX:
        raise ValueError(f"the return value takes {len(kept.body):,} bytes as JSON: {RESULT_BYTES_MAX:,} are kept")
    return kept


def add_stored(result: Any, kept: popmq.Result) -> None:
    """The outcome of a task that returned."""
    told = kept.json()
    times = {name: datetime.fromisoformat(told[name]) for name in ("started_at", "last_attempted_at", "finished_at")}
    change(
        result,
        status=TaskResultStatus.SUCCESSFUL,
        worker_ids=told["worker_ids"],
        errors=[TaskError(exception_class_path=path, traceback=text) for path, text in told["errors"]],
        _return_value=told["return_value"],
        **times,
    )


def error_raised(error: BaseException) -> Any:
    """An exception as Django keeps it."""
    kind, found = type(error), error.__traceback__
    while found is not None and found.tb_frame.f_globals.get("__name__", "").startswith(_BETWEEN):
        found = found.tb_next
    lines = format_exception(kind, error, found or error.__traceback__)
    return TaskError(exception_class_path=f"{kind.__module__}.{kind.__qualname__}", traceback="".join(lines))


def reason_of(error: Any) -> str:
    """Its text for the broker: the class, and the end of the traceback, which says most."""
    head = f"Traceback of {error.exception_class_path} (most recent call last):\n"
    text: bytes = error.traceback.removeprefix(_HEAD).encode(errors="replace")
    return head + text[-(REASON_MAX - len(head.encode())) :].decode(errors="ignore")


def error_of(reason: str) -> Any:
    """The error that a reason tells of: a worker's, or what the broker or an operator said."""
    if found := _OF.match(reason):
        return TaskError(exception_class_path=found[1], traceback=_HEAD + reason[found.end() :])
    return TaskError(exception_class_path="popmq.errors.ResultFailed", traceback=reason)


def _local(ms: int) -> datetime:
    """As Django writes times: aware, or naive local time with USE_TZ off."""
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment if settings.USE_TZ else timezone.make_naive(moment)


def _aware(moment: datetime) -> datetime:
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment
