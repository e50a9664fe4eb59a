"""KEDA, as far as a broker sees it: the stub of its contract, and the metadata of a trigger."""

from __future__ import annotations

import queue
import threading
from typing import Any

import grpc

from popmq_proto.keda import externalscaler_pb2 as pb
from popmq_proto.keda import externalscaler_pb2_grpc as rpc
from tests.wire.stubs import CALL_S, GROUP, TOPIC


def trigger(**metadata: str) -> pb.ScaledObjectRef:
    """What KEDA sends of a ScaledObject; a key without a value is left out."""
    whole = {"scalerAddress": "popmq:8081", "topic": TOPIC, "group": GROUP, **metadata}
    return pb.ScaledObjectRef(
        name="worker", namespace="shop", scalerMetadata={key: value for key, value in whole.items() if value}
    )


class Keda:
    """Calls over one channel."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.stub: Any = rpc.ExternalScalerStub(channel)

    def is_active(self, **metadata: str) -> bool:
        answer: pb.IsActiveResponse = self.stub.IsActive(trigger(**metadata), timeout=CALL_S)
        return answer.result

    def metric(self, **metadata: str) -> float:
        asked = pb.GetMetricsRequest(scaledObjectRef=trigger(**metadata), metricName="popmq-messages")
        (value,) = self.stub.GetMetrics(asked, timeout=CALL_S).metricValues
        assert (value.metricName, value.metricValueFloat) == ("popmq-messages", value.metricValue)
        return float(value.metricValue)

    def spec(self, **metadata: str) -> pb.MetricSpec:
        (spec,) = self.stub.GetMetricSpec(trigger(**metadata), timeout=CALL_S).metricSpecs
        assert isinstance(spec, pb.MetricSpec)
        return spec

    def first(self, asked: pb.ScaledObjectRef, timeout: float) -> bool:
        """The first answer of a StreamIsActive."""
        answer: pb.IsActiveResponse = next(self.stub.StreamIsActive(asked, timeout=timeout))
        return answer.result

    def watch(self, **metadata: str) -> Watch:
        return Watch(self.stub.StreamIsActive(trigger(**metadata)))


class Watch:
    """An open StreamIsActive. A thread reads it, so that a test that gets no answer fails, and does not hang."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._said: queue.SimpleQueue[bool | grpc.RpcError] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for answer in self._stream:
                self._said.put(answer.result)
        except grpc.RpcError as error:
            self._said.put(error)

    def next(self) -> bool:
        """The next answer. Raises the error with which the stream ended."""
        said = self._said.get(timeout=CALL_S)
        if isinstance(said, grpc.RpcError):
            raise said
        return said

    def is_silent(self) -> bool:
        return self._said.empty()

    def close(self) -> None:
        self._stream.cancel()
