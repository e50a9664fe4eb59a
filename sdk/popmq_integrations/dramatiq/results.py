"""PopMQBackend: results of Dramatiq's actors, kept by the group that reads their queue."""

import re
import time
from typing import Any

import dramatiq
from dramatiq.broker import MessageProxy
from dramatiq.common import q_name
from dramatiq.encoder import Encoder
from dramatiq.results import Missing, ResultBackend, ResultFailure, ResultMissing, ResultTimeout
from dramatiq.results.result import wrap_exception, wrap_result

import popmq
from popmq.outcome import RESULT_BYTES_MAX
from popmq_integrations.clients import ClientOfProcess
from popmq_integrations.dramatiq.delivered import Delivered
from popmq_integrations.queues import id_of
from popmq_integrations.results import counts, keep_for, result_of

#: Milliseconds that get_result waits if it is told to block and not for how long, as Dramatiq's other backends.
TIMEOUT_MS = 10_000
#: Seconds between two looks while the queue of a message has no group yet.
_LOOK_S = 0.1
#: How the reason of a dead letter begins, as popmq_integrations.reasons writes it.
_RAISED = re.compile(r"([\w.<>]+): (.*?)(?:\n  File .*)?\Z", re.DOTALL)


def topic_of(namespace: str, queue_name: str) -> str:
    """The topic of a queue, and the group that reads it."""
    return f"{namespace}.{queue_name}"


class PopMQBackend(ResultBackend):
    """Keeps results in `%RESULT%dramatiq.default`, for the queue `default`.

    `namespace` is that of the PopMQBroker. With it, a result is stored in the commit that acks its message; it may be
    used with any other broker of Dramatiq. `endpoint`, `client_options`: as of popmq.Client. A result is at most
    256 KiB as the encoder writes it: who asks for a larger one gets a ResultFailure that says so.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        namespace: str = "dramatiq",
        encoder: Encoder | None = None,
        **client_options: Any,
    ) -> None:
        super().__init__(namespace=namespace, encoder=encoder)
        self._client = ClientOfProcess(endpoint, **client_options)
        self._kept: dict[str, float] = {}  # seconds for which groups are known to keep results

    def get_result(
        self, message: "dramatiq.Message[Any] | MessageProxy", *, block: bool = False, timeout: int | None = None
    ) -> Any:
        """The result of a message; with `block` it waits for it up to `timeout` milliseconds, by default 10 s.

        The broker answers as soon as there is a result, also if the message became a dead letter in another way than
        by an exception. Raises ResultMissing, ResultTimeout, ResultFailure; popmq.errors.Unavailable.
        """
        until = time.monotonic() + (TIMEOUT_MS if timeout is None else timeout) / 1000
        while True:
            left = max(0.0, until - time.monotonic()) if block else 0.0
            found = self._look(message, left)
            if found is not Missing:
                return self.unwrap_result(found)  # type: ignore[no-untyped-call]  # inherited, and without types
            if not block:
                raise ResultMissing(message)
            if time.monotonic() >= until:
                raise ResultTimeout(message)
            time.sleep(min(_LOOK_S, left))

    def store_result(self, message: "dramatiq.Message[Any] | MessageProxy", result: Any, ttl: int) -> None:
        """Keeps a result for `ttl` milliseconds: with the ack of the message if it is in hand, else at once."""
        self._keep(message, wrap_result(result), ttl)

    def store_exception(self, message: "dramatiq.Message[Any] | MessageProxy", exception: Exception, ttl: int) -> None:
        """Keeps why a message failed; of a message of PopMQBroker its dead letter is this result."""
        group = self.group_of(message)
        if isinstance(message, Delivered) and message.takes(None, group, self._client().endpoint):
            return
        self._keep(message, wrap_exception(exception), ttl)

    def group_of(self, message: "dramatiq.Message[Any] | MessageProxy") -> str:
        """The group that keeps the result of a message."""
        return topic_of(self.namespace, q_name(message.queue_name))

    def keep_for(self, group: str, ttl: int) -> None:
        """Lets a group keep results for at least `ttl` milliseconds, and makes one that does not exist."""
        if self._kept.get(group, -1.0) >= ttl / 1000:
            return
        client = self._client()
        try:
            keep_for(client, group, ttl / 1000)
        except popmq.errors.GroupNotFound:  # of a broker that is not PopMQ's
            client.groups.create(group)
            keep_for(client, group, ttl / 1000)
        self._kept[group] = ttl / 1000

    def close(self) -> None:
        """Closes the connection of this process."""
        self._client.close()

    def _look(self, message: Any, wait: float) -> Any:
        """The result, or Missing after `wait` seconds."""
        key = id_of(message.message_id)
        try:
            found = self._client().results([key], self.group_of(message), wait).get(key)
        except popmq.errors.GroupNotFound:
            return Missing
        except popmq.errors.InvalidField:  # it keeps no results yet: no worker with a result backend has run
            self.keep_for(self.group_of(message), 0)
            return Missing
        if found is None or not counts(found):
            return Missing
        if found.failed:
            raise _failure(found.reason)
        return self.encoder.decode(found.body)

    def _keep(self, message: Any, value: Any, ttl: int) -> None:
        group = self.group_of(message)
        self.keep_for(group, ttl)
        body = self.encoder.encode(value)
        result = result_of(body, ttl)
        if result is None:
            told = f"the result is {len(body)} bytes, and a group keeps at most {RESULT_BYTES_MAX}: store it elsewhere"
            result = result_of(self.encoder.encode(wrap_exception(ValueError(told))), ttl)
            assert result is not None
        # The callbacks of a group look for the results of its members before the last one is acked.
        at_once = message.options.get("group_completion_uuid")
        if isinstance(message, Delivered) and not at_once and message.takes(result, group, self._client().endpoint):
            return
        self._client().store_results({id_of(message.message_id): result}, group)


def _failure(reason: str) -> ResultFailure:
    """What the reason of a dead letter says, as Dramatiq raises it."""
    raised = _RAISED.match(reason)
    if raised is None:  # such as "lease expired": workers died of it
        return ResultFailure(f"the message became a dead letter: {reason}", "DeadLetter", reason)
    return ResultFailure(f"actor raised {raised[1]}: {raised[2]}", raised[1], raised[2])
