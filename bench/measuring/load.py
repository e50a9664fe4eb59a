"""One load process: callers in a closed loop on one event loop.

    python -m bench.measuring.load '{"work": "raw_send", "endpoint": …}'

It prints `ready`, waits for a line on its standard input, runs, and prints its tally as one line of JSON. Requests are
prepared before the clock starts; answers are parsed as a real client parses them.
"""

import asyncio
import importlib
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import grpc

from bench.measuring.requests import SendRequests
from popmq_proto.v1 import popmq_pb2 as pb

CHANNEL = [("grpc.max_receive_message_length", 20 << 20), ("grpc.max_send_message_length", 20 << 20)]
SERVICE = "/popmq.v1.Broker/"
LEASE_MS = 60_000
LONGEST_LEASE_MS = 43_200_000

Call = grpc.aio.UnaryUnaryMultiCallable[Any, Any]
Start = Callable[[], Awaitable[None]]


@dataclass
class Spec:
    """The task of a load process. `number` is its own; callers stop at `messages`, or after `seconds`."""

    work: str
    endpoint: str
    topic: str
    group: str = ""
    batch: int = 1
    callers: int = 1
    body_bytes: int = 1024
    seconds: float = 5.0
    messages: int = 2**62
    number: int = 0
    message_groups: int = 0
    loop: str = "asyncio"  # the package whose event loop runs it


@dataclass
class Tally:
    """Its result: latencies of the calls in seconds, the time from the first call to the last answer, its own CPU."""

    messages: int = 0
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    latencies: list[float] = field(default_factory=list)


class Callers:
    """Repeats a step in several tasks until the time is over, or the messages are sent."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.tally = Tally()

    async def run(self, steps: list[Callable[[], Awaitable[int]]]) -> Tally:
        """A step makes its calls and returns how many messages they moved; 0 ends its caller."""
        started, cpu = time.perf_counter(), time.process_time()
        self._until = started + self.spec.seconds
        await asyncio.gather(*map(self._caller, steps))
        self.tally.elapsed_s, self.tally.cpu_s = time.perf_counter() - started, time.process_time() - cpu
        return self.tally

    async def _caller(self, step: Callable[[], Awaitable[int]]) -> None:
        while time.perf_counter() < self._until and self.tally.messages < self.spec.messages:
            started = time.perf_counter()
            moved = await step()
            if not moved:
                return
            self.tally.latencies.append(time.perf_counter() - started)
            self.tally.messages += moved


# ── Through raw stubs ────────────────────────────────────────────────────────────────────────────────────────────────


async def raw_send(spec: Spec, start: Start) -> Tally:
    async with grpc.aio.insecure_channel(spec.endpoint, options=CHANNEL) as channel:
        call: Call = channel.unary_unary(SERVICE + "Send", response_deserializer=pb.SendResponse.FromString)

        def sender(caller: int) -> Callable[[], Awaitable[int]]:
            number = spec.number * 256 + caller
            requests = SendRequests(spec.topic, spec.batch, spec.body_bytes, number, spec.message_groups)

            async def send() -> int:
                answer = await call(requests.next(), timeout=60)
                assert len(answer.results) == spec.batch
                return spec.batch

            return send

        await channel.channel_ready()
        await start()
        return await Callers(spec).run([sender(caller) for caller in range(spec.callers)])


async def raw_pop(spec: Spec, start: Start) -> Tally:
    """Pops and acks until the topic is empty."""
    async with grpc.aio.insecure_channel(spec.endpoint, options=CHANNEL) as channel:
        pop: Call = channel.unary_unary(SERVICE + "Pop", response_deserializer=pb.PopResponse.FromString)
        ack = channel.unary_unary(
            SERVICE + "Ack", pb.AckRequest.SerializeToString, response_deserializer=pb.AckResponse.FromString
        )
        asked = pb.PopRequest(topic=spec.topic, group=spec.group, max_messages=spec.batch, invisible_ms=LEASE_MS)
        request = asked.SerializeToString()
        seen: set[tuple[int, int]] = set()

        async def pop_and_ack() -> int:
            answer = await pop(request, timeout=60)
            if not answer.deliveries:
                return 0
            places = {(delivery.queue, delivery.offset) for delivery in answer.deliveries}
            assert seen.isdisjoint(places), "popped twice"
            seen.update(places)
            handles = [delivery.handle for delivery in answer.deliveries]
            acked = await ack(pb.AckRequest(group=spec.group, handles=handles), timeout=60)
            assert not any(result.HasField("error") for result in acked.results)
            return len(handles)

        await channel.channel_ready()
        await start()
        return await Callers(spec).run([pop_and_ack] * spec.callers)


async def raw_lease(spec: Spec, start: Start) -> Tally:
    """Pops one message a call, for the longest lease that there is, and never acks it."""
    async with grpc.aio.insecure_channel(spec.endpoint, options=CHANNEL) as channel:
        pop: Call = channel.unary_unary(
            SERVICE + "Pop", pb.PopRequest.SerializeToString, response_deserializer=pb.PopResponse.FromString
        )
        numbers = iter(range(2**62))

        async def lease() -> int:
            request = pb.PopRequest(topic=spec.topic, group=spec.group, max_messages=1, invisible_ms=LONGEST_LEASE_MS)
            # A client and an attempt of its own for each, so that no two of them become one lease of two messages.
            request.client_id, request.attempt_id = "rest", f"{spec.number}-{next(numbers)}"
            return len((await pop(request, timeout=60)).deliveries)

        await channel.channel_ready()
        await start()
        return await Callers(spec).run([lease] * spec.callers)


# ── Through the SDK ──────────────────────────────────────────────────────────────────────────────────────────────────


async def sdk_send(spec: Spec, start: Start) -> Tally:
    """Sends batches as they are; single messages are gathered by the SDK."""
    import popmq

    body, sent = b"." * (spec.body_bytes - 16), iter(range(2**62))
    async with popmq.AsyncClient(spec.endpoint) as client:

        async def send() -> int:
            messages = [popmq.Message(b"%04x%012x" % (spec.number, next(sent)) + body) for _ in range(spec.batch)]
            await client.send(spec.topic, messages if spec.batch > 1 else messages[0])
            return spec.batch

        await start()
        return await Callers(spec).run([send] * spec.callers)


async def sdk_pop(spec: Spec, start: Start) -> Tally:
    import popmq

    async with popmq.AsyncClient(spec.endpoint) as client:

        async def pop_and_ack() -> int:
            deliveries = await client.pop(spec.topic, spec.group, max_messages=spec.batch, invisible=LEASE_MS / 1000)
            if deliveries:
                await client.ack(deliveries)
            return len(deliveries)

        await start()
        return await Callers(spec).run([pop_and_ack] * spec.callers)


async def sdk_consume(spec: Spec, start: Start) -> Tally:
    """The consumer with its guard: one ack a message, gathered by the SDK."""
    import popmq

    tally = Tally()
    async with popmq.AsyncClient(spec.endpoint) as client:
        await start()
        started, cpu = time.perf_counter(), time.process_time()
        async for delivery in client.consume(spec.topic, spec.group):
            async with delivery:
                tally.messages += 1
            if tally.messages >= spec.messages or time.perf_counter() - started > spec.seconds:
                break
        tally.elapsed_s, tally.cpu_s = time.perf_counter() - started, time.process_time() - cpu
    return tally


WORK: dict[str, Callable[[Spec, Start], Awaitable[Tally]]] = {
    work.__name__: work for work in (raw_send, raw_pop, raw_lease, sdk_send, sdk_pop, sdk_consume)
}


async def _start() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


def main() -> None:
    given: dict[str, Any] = json.loads(sys.argv[1])
    spec = Spec(**given)
    with asyncio.Runner(loop_factory=importlib.import_module(spec.loop).new_event_loop) as runner:
        print(json.dumps(asdict(runner.run(_run(spec)))), flush=True)


async def _run(spec: Spec) -> Tally:
    return await WORK[spec.work](spec, _start)


if __name__ == "__main__":
    main()
