"""A proxy between a client and a real broker that loses or refuses calls as a test plans it."""

import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import grpc
from google.protobuf import any_pb2
from google.rpc import status_pb2

from popmq_proto.v1 import popmq_pb2 as pb

#: REFUSE: the broker never sees the request. LOSE: it does what was asked, and its answer is lost. HANG: no answer.
REFUSE, LOSE, HANG = "refuse", "lose", "hang"


class LossyWire(grpc.GenericRpcHandler):
    """`plan["Send"] = [LOSE, REFUSE]` spoils the next two Sends; `seen["Send"]` holds every request, as bytes.

    An entry of a plan may also be a grpc.StatusCode, a status with the ErrorInfo that it comes with, or a function that
    is called with the way to the broker, and returns the answer.
    """

    def __init__(self, broker: str) -> None:
        self.plan: defaultdict[str, list[Any]] = defaultdict(list)
        self.seen: defaultdict[str, list[bytes]] = defaultdict(list)
        self._broker: Any = grpc.insecure_channel(broker)
        self._closing = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(32), handlers=[self])
        self.endpoint = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def service(self, details: Any) -> Any:
        def handle(request: bytes, context: grpc.ServicerContext) -> Any:
            return self._handle(details.method, request, context)

        return grpc.unary_unary_rpc_method_handler(handle)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.stop(None).wait()
        self._broker.close()

    def _handle(self, method: str, request: bytes, context: Any) -> Any:
        name = method.rpartition("/")[2]
        self.seen[name].append(request)
        act = self.plan[name].pop(0) if self.plan[name] else None
        if act == HANG:
            self._closing.wait()
        elif isinstance(act, tuple):
            abort_with(context, *act)
        elif isinstance(act, grpc.StatusCode):
            context.abort(act, "said by the test")
        if act in (REFUSE, HANG):
            context.abort(grpc.StatusCode.UNAVAILABLE, "refused by the test")
        if callable(act):
            return act(lambda: self._forward(method, request, context))
        reply = self._forward(method, request, context)
        if act == LOSE:
            context.abort(grpc.StatusCode.UNAVAILABLE, "lost by the test")
        return reply

    def _forward(self, method: str, request: bytes, context: Any) -> Any:
        try:
            return self._broker.unary_unary(method)(request, timeout=context.time_remaining())
        except grpc.RpcError as error:
            call: Any = error
            context.set_trailing_metadata(call.trailing_metadata())
            context.abort(call.code(), call.details())


def holding(late: threading.Event) -> Callable[[Callable[[], bytes]], bytes]:
    """For a plan: nothing of this call reaches the broker before `late`."""

    def hold(forward: Callable[[], bytes]) -> bytes:
        late.wait()
        return forward()

    return hold


def abort_with(context: Any, status: grpc.StatusCode, info: pb.ErrorInfo) -> None:
    detail = any_pb2.Any()
    detail.Pack(info)
    rich = status_pb2.Status(code=status.value[0], message=info.message, details=[detail])
    context.set_trailing_metadata((("grpc-status-details-bin", rich.SerializeToString()),))
    context.abort(status, info.message)
