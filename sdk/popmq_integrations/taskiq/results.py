"""PopMQResultBackend: results and progress of taskiq's tasks, kept by the group that reads them."""

from typing import Any, TypeVar

from taskiq import TaskiqResult
from taskiq.abc.result_backend import AsyncResultBackend
from taskiq.abc.serializer import TaskiqSerializer
from taskiq.depends.progress_tracker import TaskProgress
from taskiq.exceptions import ResultGetError
from taskiq.serializers import JSONSerializer

import popmq
from popmq.duration import Duration, seconds_of
from popmq.outcome import RESULT_BYTES_MAX
from popmq_integrations.clients import ClientOfLoop
from popmq_integrations.queues import id_of
from popmq_integrations.results import counts, keep_for_async, result_of
from popmq_integrations.taskiq.in_hand import HandLedger

T = TypeVar("T")

#: What follows the id of a task in that of its whole error, and of its progress. What the broker keeps of a dead letter
#: by itself is only the reason.
_ERROR, _PROGRESS = "!error", "!progress"


class ResultIsMissing(ResultGetError):
    """The task has no result: it runs still, was never sent, or its result is too old."""

    __template__ = "The task has no result: it runs still, was never sent, or its result is too old"


class PopMQResultBackend(AsyncResultBackend[T]):
    """Keeps results in `%RESULT%taskiq`, for the group `taskiq`.

    With a PopMQBroker, a result is stored in the commit that acks its task. `result_ttl`: how long results count.
    `keep_results` False: a result is forgotten when it was read. `group_name`: as of the broker. `serializer`: by
    default JSON; a pickled result runs code of who wrote it. `endpoint`, `client_options`: as of popmq.AsyncClient. A
    result is at most 256 KiB as the serializer writes it: instead of a larger one, an error is stored that says so.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        group_name: str = "taskiq",
        result_ttl: Duration = "24h",
        keep_results: bool = True,
        serializer: TaskiqSerializer | None = None,
        **client_options: Any,
    ) -> None:
        self.group_name = group_name
        self.keep_results = keep_results
        self.serializer = serializer or JSONSerializer()
        self.in_hand: HandLedger | None = None  # of the broker that uses it
        self._ttl = seconds_of(result_ttl, "result_ttl")
        self._client = ClientOfLoop(endpoint, **client_options)

    async def startup(self) -> None:
        """Lets the group keep results, and makes one that does not exist."""
        client = self._client()
        try:
            await keep_for_async(client, self.group_name, self._ttl)
        except popmq.errors.GroupNotFound:  # of a broker that is not PopMQ's
            await client.groups.create(self.group_name)
            await keep_for_async(client, self.group_name, self._ttl)

    async def shutdown(self) -> None:
        """Closes the connection."""
        await self._client.close()

    async def set_result(self, task_id: str, result: TaskiqResult[T]) -> None:
        """Keeps a result: with the ack of a task that is in hand, else at once."""
        kept = self._kept(result)
        running = self.in_hand.running(task_id) if self.in_hand is not None else None
        if running is None:
            await self._store(id_of(task_id), kept)
        elif running.failure and not running.sends:
            await self._store(id_of(task_id) + _ERROR, kept)  # its dead letter is the other half
        else:
            running.result = kept

    async def is_result_ready(self, task_id: str) -> bool:
        """Whether the task has ended, in whatever way."""
        return await self._found(task_id) is not None

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult[T]:
        """The result of a task. Raises ResultIsMissing. A task whose workers died of it has an error that says so."""
        found = await self._found(task_id)
        if found is None:
            raise ResultIsMissing
        if not self.keep_results:
            await self._client().forget_results([id_of(task_id), id_of(task_id) + _ERROR], self.group_name)
        if found.failed:
            error = RuntimeError(f"the task became a dead letter: {found.reason}")
            return TaskiqResult[Any](is_err=True, return_value=None, execution_time=0.0, error=error)
        return TaskiqResult[Any].model_validate(self.serializer.loadb(found.body))

    async def set_progress(self, task_id: str, progress: TaskProgress[Any]) -> None:
        """Keeps the progress of a task, at once; the last one counts."""
        kept = result_of(self.serializer.dumpb(progress.model_dump(mode="json")), self._ttl_ms())
        if kept is None:
            raise ValueError(f"the progress of a task is larger than the {RESULT_BYTES_MAX} bytes of a result")
        await self._store(id_of(task_id) + _PROGRESS, kept)

    async def get_progress(self, task_id: str) -> TaskProgress[Any] | None:
        """The progress of a task; None: it has told none."""
        key = id_of(task_id) + _PROGRESS
        found = (await self._results([key])).get(key)
        return None if found is None else TaskProgress[Any].model_validate(self.serializer.loadb(found.body))

    def _kept(self, result: TaskiqResult[Any]) -> popmq.Result:
        body = self.serializer.dumpb(result.model_dump(mode="json"))
        kept = result_of(body, self._ttl_ms())
        if kept is not None:
            return kept
        told = f"the result is {len(body)} bytes, and a group keeps at most {RESULT_BYTES_MAX}: store it elsewhere"
        error: TaskiqResult[Any] = TaskiqResult(
            is_err=True, return_value=None, execution_time=result.execution_time, error=ValueError(told)
        )
        return self._kept(error)

    def _ttl_ms(self) -> int:
        return round(self._ttl * 1000)

    async def _found(self, task_id: str) -> popmq.Result | None:
        whole, plain = id_of(task_id) + _ERROR, id_of(task_id)
        found = await self._results([plain, whole])
        last = found.get(plain)
        return found.get(whole, last) if last is not None and last.failed else last

    async def _results(self, keys: list[str]) -> dict[str, popmq.Result]:
        try:
            found = await self._client().results(keys, self.group_name)
        except (popmq.errors.GroupNotFound, popmq.errors.InvalidField):  # nothing has ever been kept
            return {}
        return {key: each for key, each in found.items() if counts(each)}

    async def _store(self, key: str, result: popmq.Result) -> None:
        await self._client().store_results({key: result}, self.group_name)
