"""Calls free their objects themselves. Left to the garbage collector they took a tenth of the CPU of a single send, and
a refused send kept its messages until the next collection.
"""

import gc
from pathlib import Path
from typing import Any

import pytest

from bench.check import BODY, BROKER, LEGS, V2, Client, Step, prepare
from popmq_proto.rocketmq import definition_pb2 as v2
from popmq_proto.rocketmq import service_pb2 as v2rpc
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.options import Options
from popmq_server.process.serving import Serving

CALLS = 16


async def refused(client: Client, number: int) -> None:
    request = pb.SendRequest(topic="unknown", messages=[pb.Message(message_id=f"{number}", body=BODY)])
    assert not await client.call(BROKER + "Send", request)


async def declined(client: Client, number: int) -> None:
    request = v2rpc.SendMessageRequest(messages=[v2.Message(topic=v2.Resource(name="unknown"), body=BODY)])
    request.messages[0].system_properties.message_id = f"{number}"
    (raw,) = await client.call(V2 + "SendMessage", request)
    assert v2rpc.SendMessageResponse.FromString(raw).status.code == v2.TOPIC_NOT_FOUND


STEPS = {name: step for name, (step, _) in LEGS.items()} | {"refused": refused, "v2 refused": declined}


async def garbage(client: Client, step: Step) -> list[str]:
    """The types of the objects that only the garbage collector can free after CALLS calls."""
    await step(client, 0)
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.disable()
    try:
        for number in range(CALLS):
            await step(client, 1 + number)
        gc.collect()
        return [type(found).__name__ for found in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.smoke
@pytest.mark.slow  # makes 130 calls, among them batches of 256
async def test_calls_leave_no_garbage_to_the_collector(tmp_path: Path) -> None:
    options = Options(tmp_path / "data", port=0, metrics_port=0, sync="none", transport="python")
    async with Serving(options, FakeClock()) as serving:
        transport: Any = serving._server._transport
        client = Client(transport._server)
        await prepare(client)
        found = {name: await garbage(client, step) for name, step in STEPS.items()}
        client.close()
    # protobuf leaves a descriptor now and then
    assert {name: types for name, types in found.items() if len(types) >= CALLS} == {}
