"""Long polling of pulls: a Pull at the end of its queue is parked until the queue grows.

    Pull ──▶ look ──▶ messages, or an offset to correct ─────────────────────────────────────▶ answer
              ▲  │
              │  ├──▶ nothing matched, or could be read, and there is more ──▶ continue after it
              │  │
              │  └──▶ at the end ──▶ parked: no command, no thread ──▶ deadline ─────────────▶ answer
              └───────────────────── the queue grew ◀──────────┘

A commit that extends a queue wakes all Pulls parked on it; each reads for itself and takes nothing from the others. A
commit to another queue wakes none of them. As for Pops (long_poll.py), comparing a generation before parking excludes a
lost wake, so no periodic look is needed.

A Pull is parked until its own deadline: when it is woken and finds no match, it parks again, after the messages that
it has read. The answer's next offset is after everything that was read, so the next Pull does not read it again.
"""

from collections.abc import Collection
from dataclasses import replace

from popmq_server.clock import Clock
from popmq_server.contract.commands import Pull, Pulled, UpdateOffsets
from popmq_server.embedded.loop.in_pieces import InPieces
from popmq_server.embedded.loop.long_poll import Waiters
from popmq_server.errors import Refused
from popmq_server.values.message import RETRY_PREFIX

#: The queue has no message at this offset yet, and may get one.
AT_THE_END = frozenset({"NO_MESSAGE_IN_QUEUE", "OFFSET_OVERFLOW_ONE"})
#: Bytes that a command reads, 0.3 ms of the writer: with 4 MiB at a time, two readers made other clients wait 20 ms.
PIECE_MESSAGES, PIECE_BYTES = 256, 256 << 10
#: No message was returned from here, but there may be one after it.
PASSED_OVER = frozenset({"OFFSET_FOUND_NULL", "NO_MATCHED_MESSAGE", "MESSAGE_WAS_REMOVING"})


class ParkedPulls:
    """`engine` runs the pieces of a Pull. For one event loop."""

    def __init__(self, clock: Clock, engine: InPieces) -> None:
        self._clock = clock
        self._engine = engine
        self.waiters = Waiters(clock, wake_all=True, what="Pulls of queue")

    async def pull(self, command: Pull, wait_ms: int) -> Pulled:
        """Reads; waits at most `wait_ms` while there is nothing. Only the first look commits the request's offset."""
        deadline_ms = self._clock.now_ms() + wait_ms
        key, acked, over, passed = _key(command), 0, 0, ""
        while True:
            seen = self.waiters.generation(key)
            pulled = await self._read(command)
            acked, over = acked + pulled.acked, over + pulled.passed_over
            if pulled.left and command.commit_offset is not None:  # of a retry topic
                update = {command.queue: command.commit_offset}
                one = UpdateOffsets(command.topic, command.group, update, pulled.topic_created_ms)
                acked += await self._engine.execute(one)
            passed = pulled.status if pulled.status in PASSED_OVER else passed
            status = passed if passed and pulled.status in AT_THE_END else pulled.status
            answer = pulled._replace(status=status, acked=acked, passed_over=over)
            if pulled.rows or self._clock.now_ms() >= deadline_ms or not _waits(command, pulled):
                return answer
            after, created_ms = pulled.next_offset, pulled.topic_created_ms
            command = replace(command, offset=after, commit_offset=None, topic_created_ms=created_ms)
            if not pulled.more and not await self.waiters.park(key, seen, deadline_ms):
                return answer

    async def _read(self, command: Pull) -> Pulled:
        """Reads in pieces, between which commands of others run: they do not wait for all of a bulk reader's 4 MiB."""
        if command.topic.startswith(RETRY_PREFIX):
            return await self._engine.run(command)
        left, bytes_left = command.max_messages, command.max_bytes
        piece = replace(command, max_messages=min(left, PIECE_MESSAGES), max_bytes=min(bytes_left, PIECE_BYTES))
        whole = answer = await self._engine.run(piece)
        while answer.full and answer.rows:
            left, bytes_left = left - len(answer.rows), bytes_left - answer.bytes
            if left <= 0 or bytes_left <= 0:
                break
            piece = replace(
                command,
                offset=answer.next_offset,
                commit_offset=None,
                max_messages=min(left, PIECE_MESSAGES),
                max_bytes=min(bytes_left, PIECE_BYTES),
                topic_created_ms=answer.topic_created_ms,
                rest_bytes=bytes_left,
            )
            try:
                answer = await self._engine.run(piece)
            except Refused:  # its topic is gone, or its quota used up: the next pull is refused
                break
            if not answer.rows and answer.status not in PASSED_OVER:
                break
            rows, over = whole.rows, whole.passed_over + answer.passed_over
            rows += answer.rows
            whole = answer._replace(
                status=whole.status, rows=rows, acked=whole.acked, left=whole.left, passed_over=over
            )
        return whole

    def wake(self, arrived: Collection[tuple[str | None, str]], woken: set[tuple[str | None, str]]) -> None:
        """After a commit: wakes Pulls of queues that grew or changed, and of retry topics with new entries."""
        retries = [(RETRY_PREFIX + group, topic) for group, topic in woken if group is not None]
        self.waiters.wake({*retries, *arrived})


def _waits(command: Pull, pulled: Pulled) -> bool:
    """Whether to wait after an answer without messages: not when the caller has to correct its offset.

    An empty queue is waited for at offset 0 only: any other offset there is as wrong as one beyond the end.
    """
    if pulled.status == "NO_MESSAGE_IN_QUEUE":
        return command.offset == 0
    return pulled.status in AT_THE_END or pulled.status in PASSED_OVER


def _key(command: Pull) -> tuple[str, str]:
    """Where a Pull waits: (queue, topic), or (retry topic of the group, topic)."""
    if command.topic.startswith(RETRY_PREFIX):
        group, _, topic = command.topic.removeprefix(RETRY_PREFIX).partition("+")
        return RETRY_PREFIX + group, topic
    return str(command.queue), command.topic
