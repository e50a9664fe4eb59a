"""popmq.v1: results of messages are asked for and forgotten; requests.py reads those that an Ack or a Settle gives.

docs/results.md describes them.
"""

from google.protobuf.message import Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract.commands import ForgetResults, GetResults, ResultsFound, StoreResults
from popmq_server.protocols import validation
from popmq_server.protocols.native import native, requests
from popmq_server.values.message import MESSAGE_ID_BYTES_MAX, check_range, check_text, length_prefixed, varint


class ResultService(native.NativeServicer):
    """Results of messages."""

    async def GetResults(self, raw: bytes) -> bytes:
        """Waits for results; the answer is joined from stored bytes."""
        asked = read_get(requests.read(pb.GetResultsRequest, raw))
        found = await self._engine.ask(asked)
        self._traffic.served("GetResults", asked.group)
        self._traffic.moved("GetResults", asked.group, "", len(found.rows))
        return answer(found)

    async def StoreResults(self, raw: bytes) -> Message:
        """Stores results without acks."""
        request = requests.read(pb.StoreResultsRequest, raw)
        results = requests.message_results(request.results)
        size = sum([len(each.message_id) + len(each.body) for each in results])
        await self._engine.execute(StoreResults(validation.group_name(request.group), results, size))
        self._traffic.served("StoreResults", request.group)
        self._traffic.moved("StoreResults", request.group, "", len(results))
        return pb.StoreResultsResponse()

    async def ForgetResults(self, raw: bytes) -> Message:
        """Forgets results."""
        request = requests.read(pb.ForgetResultsRequest, raw)
        asked = ForgetResults(validation.group_name(request.group), message_ids(request))
        await self._engine.execute(asked)
        self._traffic.served("ForgetResults", asked.group)
        return pb.ForgetResultsResponse()


def answer(found: ResultsFound) -> bytes:
    """A GetResultsResponse: 1 results, each with 16 stored_ms after what is stored · 2 full."""
    rows = [data + b"\x80\x01" + varint(stored_ms) for data, stored_ms, _ in found.rows]
    parts = [b"\x0a" + row for row in length_prefixed(rows)]
    return b"".join([*parts, b"\x10\x01"] if found.full else parts)


def read_get(request: pb.GetResultsRequest) -> GetResults:
    """The query of a GetResults. Zeros become defaults."""
    ids = message_ids(request)
    check_range(request.min_results, "min_results", 0, validation.ENTRIES_MAX)
    return GetResults(
        validation.group_name(request.group),
        ids,
        check_range(request.wait_ms, "wait_ms", 0, requests.WAIT_MS_MAX),
        min(request.min_results, len(ids)) or len(ids),
        check_range(request.max_bytes, "max_bytes", 1, requests.POP_BYTES_MAX, requests.POP_BYTES),
    )


def message_ids(request: pb.GetResultsRequest | pb.ForgetResultsRequest) -> tuple[str, ...]:
    """The message ids of a request, each once."""
    check_range(len(request.message_ids), "message_ids", 1, validation.ENTRIES_MAX)
    ids = tuple(dict.fromkeys(request.message_ids))
    for index, each in enumerate(request.message_ids):
        check_text(each, f"message_ids[{index}]", MESSAGE_ID_BYTES_MAX, required=True)
    return ids
