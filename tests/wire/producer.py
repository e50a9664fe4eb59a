"""A producer of transactions as a client in any language has it: one Session stream on the generated stubs."""

from __future__ import annotations

import queue
from types import TracebackType
from typing import Any

import grpc
import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from tests.wire.stubs import CALL_S, Refusal, Stubs, read_refusal

#: A topic of half messages (fixture `deals`).
DEALS = "deals"


class Producer:
    """An open stream that was welcomed."""

    def __init__(self, stubs: Stubs, *topics: str, client_id: str = "shop-1") -> None:
        self._requests: queue.SimpleQueue[pb.SessionRequest | None] = queue.SimpleQueue()
        self.call: Any = stubs.broker.Session(iter(self._requests.get, None), timeout=CALL_S)
        self.say(hello=pb.SessionHello(client_id=client_id, transaction_topics=topics))
        assert next(self.call).HasField("welcome")

    def say(self, **request: Any) -> None:
        self._requests.put(pb.SessionRequest(**request))

    def asked(self) -> pb.TransactionCheck:
        """The next check; waits for it."""
        check: pb.TransactionCheck = next(self.call).check
        return check

    def answer(self, check: pb.TransactionCheck, resolution: pb.Resolution) -> None:
        self.say(checked=pb.TransactionChecked(transaction_id=check.transaction_id, resolution=resolution))

    def close(self) -> None:
        """Ends the stream in order, and waits until the broker has ended it."""
        self._requests.put(None)
        assert list(self.call) == []

    def vanish(self) -> None:
        """Disconnects without ending the stream."""
        self.call.cancel()
        self._requests.put(None)

    def refused(self) -> Refusal:
        """How the broker ended the stream."""
        with pytest.raises(grpc.RpcError) as error:
            next(self.call)
        self._requests.put(None)
        return read_refusal(error.value)

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.vanish()


def listed(stubs: Stubs, topic: str = DEALS) -> list[pb.HalfMessage]:
    return list(stubs.admin.ListTransactions(pb.ListTransactionsRequest(topic=topic), timeout=CALL_S).messages)


def hello(*topics: str, client_id: str = "c") -> pb.SessionRequest:
    return pb.SessionRequest(hello=pb.SessionHello(client_id=client_id, transaction_topics=topics))
