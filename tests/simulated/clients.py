"""The clients of a run: the load of `popmq verify`, on this project's own transport, each on a strand of one process.

    Actor ─▶ Stub ─▶ AsyncChannel, in the clients' loop ─▶ network

Some callers leave before the answer comes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import grpc

from popmq._transport.rpcs import rpc
from popmq_http2.client.aio import AsyncChannel, AsyncUnaryCall
from popmq_http2.client.call import CallFailed
from popmq_http2.client.target import Options
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_verify.load import scratch
from popmq_verify.load.client import FIFO_TOPIC, MESSAGE_GROUPS, Client, _message
from popmq_verify.load.history import Operation, Recorder
from popmq_verify.load.stubs import Stubs
from tests.simulated.loop import Loop
from tests.simulated.scheduler import MS, S, Scheduler

#: How often a caller leaves before the answer, and how often while the disk is slow.
LEAVES, LEAVES_SLOW = 0.04, 0.4
#: How many times as often they do when a message is sent, and how long after.
SCARED, SCARED_NS = 8, 20 * MS
#: How often a deadline is about as long as the wait, or far too short.
IMPATIENT = 0.08
DEADLINE_S = 5.0
OPTIONS = Options(backoff_first_s=0.02, backoff_max_s=0.2)


class Failed(grpc.RpcError):
    """As grpcio's error of a call."""

    def __init__(self, failed: CallFailed) -> None:
        super().__init__(str(failed))
        self._failed = failed

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode[self._failed.code.name]

    def details(self) -> str:
        return self._failed.message if self._failed.sent else f"failed to connect: {self._failed.message}"


class Calls:
    """One connection of a strand: `broker` and `admin` as Stubs has them."""

    def __init__(
        self, scheduler: Scheduler, loop: Loop, name: str, waiting: dict[AsyncUnaryCall, Callable[[], float]]
    ) -> None:
        """`waiting`: the pops of all callers, with how often theirs leave."""
        self.scheduler, self.loop, self.name, self.waiting = scheduler, loop, name, waiting
        #: How often its callers leave.
        self.leaves: Callable[[], float] = lambda: 0.0
        self.broker, self.admin = Stub(self, "Broker"), Stub(self, "Admin")
        self.channel: AsyncChannel | None = None

    def run(self, method: str, request: Any, timeout: float) -> Any:
        """The answer of a call. Raises Failed."""
        path, read = rpc(method)
        scheduler = self.scheduler
        leaves_s = scheduler.random.uniform(0, 1) ** 3 * timeout if scheduler.chance(self.leaves()) else None

        async def calling() -> bytes:
            self.channel = self.channel or AsyncChannel("127.0.0.1:8085", options=OPTIONS)
            call = self.channel.unary(path, request.SerializeToString(), (), timeout)
            if method == "Broker.Pop":
                self.waiting[call] = self.leaves
            elif method == "Broker.Send":
                self._scare()
            leaving = None if leaves_s is None else self.loop.call_later(leaves_s, call.cancel)
            try:
                return await call.result()
            finally:
                self.waiting.pop(call, None)
                if leaving is not None:
                    leaving.cancel()

        task = self.loop.create_task(calling())
        scheduler.wait(task.done)
        try:
            raw = task.result()
        except CallFailed as failed:
            scheduler.note(f"{self.name} {method} {failed}")
            raise Failed(failed) from None
        scheduler.note(f"{self.name} {method} {len(raw)}")
        return read(raw)

    def _scare(self) -> None:
        """Lets some of those that wait leave just when a message comes: what they were to get must reach others."""
        for call, leaves in self.waiting.items():
            if self.scheduler.chance(SCARED * leaves()):
                self.loop.call_later(self.scheduler.random.random() ** 2 * SCARED_NS / S, call.cancel)

    def close(self) -> None:
        if self.channel is not None:
            task = self.loop.create_task(self.channel.close())
            self.scheduler.wait(task.done)


class Stub:
    """The methods of a service, as functions of a request and a timeout."""

    def __init__(self, calls: Calls, service: str) -> None:
        self._calls, self._service = calls, service

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def method(request: Any, timeout: float = 20.0) -> Any:
            return self._calls.run(f"{self._service}.{name}", request, timeout)

        return method


class Kept(Recorder):
    """A history in memory, in the order of all clients' calls."""

    def __init__(self, scheduler: Scheduler, client: str, operations: list[Operation]) -> None:
        self.client, self.last = client, ""
        self._scheduler, self._operations = scheduler, operations

    def called(self, kind: str, **asked: Any) -> None:
        self._operation = Operation(kind, self.client, self._scheduler.now_ns, asked)
        self._operations.append(self._operation)

    def returned(self, how: str, **told: Any) -> None:
        self.last = how
        one = self._operation
        one.returned_ns, one.how, one.told = self._scheduler.now_ns, how, told

    def close(self) -> None:
        pass


class Never:
    """In place of the file that ends the load."""

    def exists(self) -> bool:
        return False


class Actor(Client):
    """A load client that takes so many steps, with the given topics and groups. `leaves`: how often it does now."""

    def __init__(
        self,
        calls: Calls,
        recorder: Recorder,
        steps: int,
        leaves: Callable[[], float],
        where: tuple[Sequence[str], Sequence[str]],
    ) -> None:
        self.name, self.stop = calls.name, cast(Path, Never())
        self.random = random.Random(calls.scheduler.random.random())
        self.calls, self.stubs = calls, cast(Stubs, calls)
        self.recorder = recorder
        self.topics, self.groups = where
        self.number, self.late = 0, []
        self.steps, self.leaves = steps, leaves
        self.patience_s = DEADLINE_S

    def _patience(self) -> float:
        if not self.leaves() or self.random.random() >= IMPATIENT:
            return self.patience_s
        return self.random.choice((self.random.uniform(0.001, 0.03), self.patience_s - DEADLINE_S + 0.001))

    def send(self) -> None:
        """As the load client, of fewer messages and to the topics of this run."""
        self.number += 1
        ids = [f"{self.name}-{self.number}-{i}" for i in range(self.random.choice((1, 1, 1, 1, 3)))]
        topic = self.random.choice(self.topics)
        order = self.random.choice(MESSAGE_GROUPS) if topic == FIFO_TOPIC else ""
        request = pb.SendRequest(topic=topic, messages=[_message(name, order) for name in ids])
        if self.random.random() < 0.3:
            self._send(request)
            return
        request.producer_id, request.request_number = self.name, self.number
        self.insist(lambda: self._send(request))

    def pop(self) -> None:
        """As the load client, with longer waits, so that many are parked."""
        self.number += 1
        choose, wait_ms = self.random.choice, self.random.choice((0, 50, 3000, 20_000))
        request = pb.PopRequest(
            topic=choose(self.topics),
            group=choose(self.groups),
            max_messages=choose((1, 8, 200)),
            invisible_ms=choose((1000, 1300, 2500)),
            wait_ms=wait_ms,
            client_id=self.name,
            attempt_id=f"a{self.number}" if self.random.random() < 0.3 else "",
        )
        self.patience_s = wait_ms / 1000 + DEADLINE_S
        answer = self.insist(lambda: self._pop(request)) if request.attempt_id else self._pop(request)
        self.patience_s = DEADLINE_S
        if answer is not None and answer.deliveries:
            self._handle(request, answer)

    def run(self) -> None:
        """Takes its steps."""
        for _ in range(self.steps):
            self.ack_late()
            chance = self.random.random()
            if chance < 0.02:
                self.calls.leaves = lambda: 0.0  # `recreate` repeats what a broker left unanswered, nothing else
                scratch.recreate(self, self.random.choice(self.groups))
            self.calls.leaves = self.leaves
            if 0.02 < chance < 0.25:
                self.send()
            elif chance > 0.25:
                self.pop()
            if self.random.random() < 0.2:
                self.calls.scheduler.pause(int(self.random.uniform(0, 1) ** 4 * 3 * S))
        self.calls.close()
