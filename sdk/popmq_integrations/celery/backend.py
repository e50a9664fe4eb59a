"""Results of tasks, as results of messages: a broker keeps them, hands them out by id, and lets callers wait for them.

    set  KEY     client.store_results({KEY: …})           one commit, also with all parts of a large one
    get  KEY     client.results([KEY, KEY-state])         waits in the broker, also for thousands at once
    incr KEY     Send to the lite topic KEY: the offset is the count. A part that ends twice has one id, and counts once

A state that is not the last one (STARTED, RETRY, progress) is kept as KEY-state, so that only the end of a task wakes
who waits for it. Results of tasks that were acked before they ran are stored while the next ones run (`behind`). Why
not with the ack of the task: docs/decisions/0060-celery.md.
"""

import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from time import monotonic
from typing import Any

from celery import states
from celery.backends.base import KeyValueStoreBackend
from celery.exceptions import TimeoutError as ResultTimeout
from kombu import Connection

import popmq
from popmq.errors import AlreadyExists, PermissionDenied, TryLater
from popmq_integrations.celery import options
from popmq_integrations.celery.behind import BYTES_MAX, Behind, behind

#: The group keeps the results, in %RESULT%celery-results. The topic counts.
GROUP = "celery-results"
COUNTS = "celery-chords"
#: Results are kept for at least and at most so many seconds.
KEEP_S = 60.0, 3650 * 86_400.0
#: How long a part of a chord that ends again is recognized, and how long a chord may stand still.
UNIQUE_IDS_S, CHORD_S = 86_400.0, 7 * 86_400.0
#: Bytes of a result; a longer value is kept in several.
RESULT_MAX = 256 * 1024
#: Parts of one call, and seconds of one wait for results.
PARTS_MAX, WAIT_S = 60, 20.0
#: Ids of a call.
IDS_MAX = 2_048
PARTS = "application/x-popmq-parts+"
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")


def identified(key: str) -> str:
    """The key, if a lite topic may have this name; else its hash."""
    return key if _PLAIN.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()


def unfinished(key: str) -> str:
    """Where the state of a task is until it has ended."""
    return identified(f"{key}-state")


@cache
def connected(process: int, url: str, given: tuple[tuple[str, Any], ...], keep: float) -> popmq.Client:
    """A client for all threads of a process, with what the backend needs in its broker."""
    options.Options.of(dict(given))
    with Connection(url, transport_options=dict(given)) as connection:
        tls = url.startswith("popmqs:")
        client = popmq.Client(**options.reached(connection, tls, 8082 if tls else 8081))
    with_rights: list[Callable[[], Any]] = [
        lambda: client.topics.create(
            COUNTS, type="LITE", unique_ids=UNIQUE_IDS_S, lite=popmq.LiteTopics(1_000_000, ttl=max(CHORD_S, keep))
        ),
        lambda: client.groups.create(GROUP, results_keep=keep, backoff=[0.0]),
    ]
    for create in with_rights:
        with suppress(AlreadyExists, PermissionDenied):  # an operator did it, perhaps with other settings
            create()
    return client


class PopMQBackend(KeyValueStoreBackend):  # type: ignore[misc]  # Celery has no types
    """`result_backend = "popmq://KEY:SECRET@HOST:PORT"`."""

    key_t = str
    implements_incr = True
    supports_native_join = True
    supports_autoexpire = True
    supports_result_compression = True

    def __init__(self, app: Any, url: str = "popmq://", **given: Any) -> None:
        super().__init__(app, url=url, **given)
        self._local = threading.local()  # the count of the part of a chord that has ended
        self._sizes: dict[str, int] = {}  # of the last chord: a size that is known does not change

    @property
    def client(self) -> popmq.Client:
        """Of this process. Raises InvalidField, Unavailable, Denied."""
        given = self.app.conf.result_backend_transport_options or {}
        keep = min(max(self.expires or KEEP_S[1], KEEP_S[0]), KEEP_S[1])
        return connected(os.getpid(), self.url, tuple(sorted(given.items())), keep)

    @property
    def behind(self) -> Behind:
        """What this process stores in the background."""
        return behind(os.getpid(), self.client, GROUP)

    def exception_safe_to_retry(self, exc: Exception) -> bool:
        """With `result_backend_always_retry`."""
        return isinstance(exc, TryLater)

    # ── Keys and values ────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, key: str) -> bytes | None:
        """The value, or None."""
        return self.mget([key])[0]

    def mget(self, keys: Iterable[str]) -> list[bytes | None]:
        """The values; of a task that has not ended, its state."""
        keys = list(keys)
        found: dict[str, bytes] = {}
        for first in range(0, len(keys), IDS_MAX):
            some = keys[first : first + IDS_MAX]
            found |= self._values({identified(key) for key in some} | {unfinished(key) for key in some})
        return [found.get(identified(key), found.get(unfinished(key))) for key in keys]

    def _values(self, ids: Iterable[str], wait: float = 0.0) -> dict[str, bytes]:
        """By id, once there is one of them or the wait is over."""
        wanted = list(dict.fromkeys(ids))
        self.behind.flush(wanted)
        kept = self.client.results(wanted, GROUP, wait=wait, at_least=1)
        found = {each: self._whole(each, result) for each, result in kept.items() if not result.failed}
        return {each: whole for each, whole in found.items() if whole is not None}

    def _whole(self, each: str, result: popmq.Result) -> bytes | None:
        """None: some of its parts are gone, as a limit of bytes drops the oldest first. Then it is none any more."""
        if not result.content_type.startswith(PARTS):
            return result.body
        rest = [identified(f"{each}-{index}") for index in range(1, int(result.content_type.removeprefix(PARTS)))]
        parts = self.client.results(rest, GROUP)
        if len(parts) < len(rest):
            self.client.forget_results([each], GROUP)
            return None
        return b"".join([result.body, *(parts[part].body for part in rest)])

    def set(self, key: str, value: str | bytes) -> None:
        """Keeps a value; it is on the broker's disk when this returns."""
        self._set_with_state(key, value, states.SUCCESS)

    def _set_with_state(self, key: str, value: str | bytes, state: str, soon: bool = False) -> None:
        """`soon`: a small value may be stored after this has returned."""
        whole = value.encode() if isinstance(value, str) else value
        place = identified(key) if state in states.READY_STATES else unfinished(key)
        if soon and len(whole) <= BYTES_MAX:
            self.behind.put(place, popmq.Result(whole))
            return
        self.behind.flush([place])  # an earlier one, which would take its place
        first, *rest = [whole[at : at + RESULT_MAX] for at in range(0, len(whole) or 1, RESULT_MAX)]
        kind = f"{PARTS}{1 + len(rest)}" if rest else ""
        stored = [(identified(f"{place}-{index}"), popmq.Result(part)) for index, part in enumerate(rest, 1)]
        stored.append((place, popmq.Result(first, content_type=kind)))  # the last one: who finds it finds all
        for at in range(0, len(stored), PARTS_MAX):
            self.client.store_results(dict(stored[at : at + PARTS_MAX]), GROUP)

    def delete(self, key: str) -> None:
        """Forgets a value."""
        self.behind.flush()
        self.client.forget_results([identified(key), unfinished(key)], GROUP)

    def _store_result(
        self, task_id: str, result: Any, state: str, traceback: Any = None, request: Any = None, **_: Any
    ) -> Any:
        """As the base class, which asks before each: success is never replaced by another state."""
        ended = state in states.READY_STATES and state != states.SUCCESS
        if ended and self._get_task_meta_for(task_id)["status"] == states.SUCCESS:
            return result
        meta = self._get_result_meta(result=result, state=state, traceback=traceback, request=request)
        value = self.encode(meta | {"task_id": str(task_id)})
        self._set_with_state(self.get_key_for_task(task_id), value, state, soon=self._acked(request))
        return result

    def _acked(self, request: Any) -> bool:
        """Whether a task was acked before it ran, so that a worker that is killed takes it along in any case.

        One that is acked late has its result stored before its ack; a part of a chord, before it counts. The request
        of a task that no worker knows, which is rejected, has no `task`.
        """
        task = self.app.tasks.get(getattr(request, "task", None))
        return task is not None and not task.acks_late and not request.chord

    # ── Waiting ────────────────────────────────────────────────────────────────────────────────────────────────────

    def wait_for(self, task_id: str, timeout: float | None = None, interval: float = 0.5, **given: Any) -> Any:
        """What is kept of one task, when it has ended. Raises celery.exceptions.TimeoutError."""
        ((_, meta),) = self.get_many([task_id], timeout, interval, **given)
        return meta

    def get_many(
        self,
        task_ids: Iterable[str],
        timeout: float | None = None,
        interval: float | None = 0.5,
        no_ack: bool = True,
        on_message: Callable[[Any], Any] | None = None,
        on_interval: Callable[[], Any] | None = None,
        max_iterations: int | None = None,
        **_: Any,
    ) -> Iterator[tuple[str, Any]]:
        """Ids with what is kept of them, as they end. `interval` is that of `on_interval`: the broker waits.

        Raises celery.exceptions.TimeoutError.
        """
        until = None if timeout is None else monotonic() + timeout
        waiting = {identified(self.get_key_for_task(task_id)): str(task_id) for task_id in task_ids}
        while waiting:
            left = WAIT_S if until is None else max(0.0, until - monotonic())
            wait = 0.0 if max_iterations else min(left, interval or 0.5 if on_interval else WAIT_S)
            found = self._values(list(waiting)[:IDS_MAX], wait)
            if on_interval is not None:
                on_interval()  # first: it raises why a parent failed
            for place, value in found.items():
                task_id, meta = waiting.pop(place), self.decode_result(value)
                self._cache[task_id] = meta
                if on_message is not None:
                    on_message(meta)
                yield task_id, meta
            if not waiting or max_iterations:
                return
            if until is not None and monotonic() >= until:
                raise ResultTimeout(f"{len(waiting)} tasks have no result after {timeout} s")

    # ── Chords ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        """How many parts have to end, of groups in groups too; Celery knows it when it sends the last one."""
        self.set(self._size_key(group_id), str(chord_size))

    def _size_key(self, group_id: str) -> str:
        return f"{self.get_key_for_chord(group_id)}-size"

    def _size(self, group_id: str) -> int | None:
        """None: not all parts are sent."""
        size = self._sizes.get(group_id)
        if size is None and (found := self.get(self._size_key(group_id))) is not None:
            size = int(found)
            self._sizes = {group_id: size}
        return size

    def on_chord_part_return(self, request: Any, state: str, result: Any, **given: Any) -> None:
        """Counts a part; the last one starts the body. A part that ends again, because its worker died, is no other."""
        if not request.group:
            return
        place = identified(self.get_key_for_chord(request.group))
        part = identified(f"{place}-{request.id}-{request.group_index}")
        counted = self.client.send(COUNTS, popmq.Message(b"+", message_id=part, lite_topic=place))
        size = self._size(request.group)
        if counted.offset + 1 != size:
            return
        if counted.duplicate and self.restore_group(request.group, cache=False) is None:
            return  # the body was started
        self._local.count = counted.offset + 1
        request.chord["chord_size"] = size
        super().on_chord_part_return(request, state, result, **given)

    def incr(self, key: str) -> int:
        """The number of parts that have ended, with the one at hand."""
        return int(self._local.count)

    def __reduce__(self, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        return super().__reduce__(args, {**(kwargs or {}), "expires": self.expires, "url": self.url})
