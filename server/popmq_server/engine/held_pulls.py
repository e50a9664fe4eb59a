"""Pulls that wait: held at the end of their queue until it moves on (S4.01–S4.15).

    Pull ──▶ look ──▶ messages, or an offset to correct ─────────────────────────────────────▶ answer
              ▲  │
              │  ├──▶ nothing matched, or could be read, and there is more ──▶ go on behind it
              │  │
              │  └──▶ at the end ──▶ held: no command, no thread ──▶ its time is over ───────▶ answer
              └───────────────────── the queue got something ◀─┘

Those who wait for one queue stand together and are woken together by a commit that makes it longer: each reads for
itself, and takes nothing from the others. A commit to another queue wakes nobody here. As for Pops (waiters.py) a
generation that is compared before parking makes a lost wake impossible, without a periodic look.

A request is held once, until its own deadline: woken and left empty-handed, since nothing matched, it goes on waiting
behind what it has looked at. What was looked at is not lost: the answer's next offset is behind it.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from popmq_server.clock import Clock
from popmq_server.commands import Pull, Pulled, UpdateOffsets
from popmq_server.engine.waiters import Waiters
from popmq_server.model.message import RETRY_PREFIX

#: There is nothing yet, and there may be (S4.06).
AT_THE_END = frozenset({"NO_MESSAGE_IN_QUEUE", "OFFSET_OVERFLOW_ONE"})
#: There is nothing here, and perhaps behind it.
PASSED_OVER = frozenset({"OFFSET_FOUND_NULL", "NO_MATCHED_MESSAGE", "MESSAGE_WAS_REMOVING"})


class HeldPulls:
    """`execute`: runs a command of the engine. For one event loop."""

    def __init__(self, clock: Clock, execute: Callable[[Any], Awaitable[Any]]) -> None:
        self._clock = clock
        self._execute = execute
        self.lot = Waiters(clock, wake_all=True, what="Pulls of queue")

    async def pull(self, command: Pull, wait_ms: int) -> Pulled:
        """Reads, held for at most `wait_ms` where there is nothing. The offset to commit goes with the first look."""
        deadline_ms = self._clock.now_ms() + wait_ms
        key, acked, passed = _key(command), 0, ""
        while True:
            seen = self.lot.generation(key)
            pulled: Pulled = await self._execute(command)
            acked += pulled.acked + await self._commit_rest(command, pulled)
            passed = pulled.status if pulled.status in PASSED_OVER else passed
            told = passed if passed and pulled.status in AT_THE_END else pulled.status
            answer = pulled._replace(status=told, acked=acked)
            if pulled.rows or self._clock.now_ms() >= deadline_ms or not _waits(command, pulled):
                return answer
            command = command._replace(offset=pulled.next_offset, commit_offset=None)
            if not pulled.more and not await self.lot.park(key, seen, deadline_ms):
                return answer

    async def _commit_rest(self, command: Pull, pulled: Pulled) -> int:
        """Many entries of a retry topic are done in pieces; how many more were."""
        acked, left = 0, pulled.left
        while left and command.commit_offset is not None:
            offsets = {command.queue: command.commit_offset}
            more, left = await self._execute(UpdateOffsets(command.topic, command.group, offsets))
            acked += more
        return acked

    def wake(self, arrived: Collection[tuple[str | None, str]], woken: set[tuple[str | None, str]]) -> None:
        """After a commit: queues that became longer, and groups that have something new in their retry topics."""
        retries = {(RETRY_PREFIX + group, topic) for group, topic in woken if group is not None}
        self.lot.wake(retries.union(arrived))


def _waits(command: Pull, pulled: Pulled) -> bool:
    """Whether an answer without messages is one to wait for: not where the caller has to learn another offset.

    An empty queue is waited for at its begin: another offset there is as wrong as one beyond the end (S2.37).
    """
    if pulled.status == "NO_MESSAGE_IN_QUEUE":
        return command.offset == 0
    return pulled.status in AT_THE_END or pulled.status in PASSED_OVER


def _key(command: Pull) -> tuple[str, str]:
    """Where it stands: by queue and topic, or by retry topic."""
    if command.topic.startswith(RETRY_PREFIX):
        group, _, topic = command.topic.removeprefix(RETRY_PREFIX).partition("+")
        return RETRY_PREFIX + group, topic
    return str(command.queue), command.topic
