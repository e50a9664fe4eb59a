"""Session streams that the broker refuses."""

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from tests.wire.parked import Parked
from tests.wire.producer import DEALS, hello, listed
from tests.wire.stubs import CALL_S, TOPIC, Stubs, read_refusal

CHECKED = pb.SessionRequest(checked=pb.TransactionChecked(transaction_id="x", resolution=pb.COMMIT))
REFUSED = {
    "nothing": ([], "INVALID_FIELD", "hello"),
    "no request": ([pb.SessionRequest()], "INVALID_FIELD", "hello"),
    "an answer first": ([CHECKED], "INVALID_FIELD", "hello"),
    "no client id": ([hello(DEALS, client_id="")], "INVALID_FIELD", "hello.client_id"),
    "a control in the client id": ([hello(DEALS, client_id="a\x1b[2J")], "INVALID_FIELD", "hello.client_id"),
    "a long client id": ([hello(DEALS, client_id="c" * 129)], "INVALID_FIELD", "hello.client_id"),
    "no topics": ([hello()], "INVALID_FIELD", "hello.transaction_topics"),
    "many topics": ([hello(*[DEALS] * 4_097)], "INVALID_FIELD", "hello.transaction_topics"),
    "a bad name": ([hello(DEALS, "a b")], "INVALID_FIELD", "hello.transaction_topics[1]"),
    "no such topic": ([hello(DEALS, "nobody")], "TOPIC_NOT_FOUND", "hello.transaction_topics[1]"),
    "a NORMAL topic": ([hello(DEALS, TOPIC)], "INVALID_FIELD", "hello.transaction_topics[1]"),
    "hello twice": ([hello(DEALS), hello(DEALS)], "INVALID_FIELD", "checked"),
    "a bad answer": ([hello(DEALS), CHECKED], "INVALID_FIELD", "checked.transaction_id"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_bad_stream_is_refused(deals: Stubs, left: Parked, why: str) -> None:
    said, code, field = REFUSED[why]

    def forever() -> Iterator[pb.SessionRequest]:
        """The client would go on speaking: it is stopped at once, and does not have to finish."""
        yield from said
        if said:
            never.wait(CALL_S)

    never = threading.Event()
    with pytest.raises(grpc.RpcError) as error:
        list(deals.broker.Session(forever(), timeout=CALL_S))
    never.set()
    refused = read_refusal(error.value)
    assert (refused.code, refused.info.field) == (code, field)
    assert listed(deals) == []


def test_bytes_that_are_no_request_end_the_stream(deals: Stubs) -> None:
    call: Any = deals.channel.stream_stream("/popmq.v1.Broker/Session")
    for said in ([b"\xff"], [hello(DEALS).SerializeToString(), b"\xff"]):
        with pytest.raises(grpc.RpcError) as error:
            list(call(iter(said), timeout=CALL_S))
        assert read_refusal(error.value).code == "INVALID_FIELD"
