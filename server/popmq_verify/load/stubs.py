"""The generated stubs on one channel that reconnects to a restarted broker within milliseconds.

The load uses them, not the SDK: the SDK would retry a call whose answer was lost, and so hide what is to be judged.
"""

from __future__ import annotations

from types import TracebackType

import grpc

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_proto.v1 import popmq_pb2_grpc as rpc

# gRPC waits 1–120 s between two tries to connect; a campaign restarts its broker every second.
OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),  # in spite of its name: how long one connect may take
    ("grpc.max_receive_message_length", 20 << 20),
    ("grpc.max_send_message_length", 20 << 20),
    ("grpc.use_local_subchannel_pool", 1),
]


class Stubs:
    """The stubs `broker` and `admin` of one endpoint, untyped as grpc makes them."""

    def __init__(self, endpoint: str) -> None:
        """Opens the channel; it connects with the first call."""
        self.channel = grpc.insecure_channel(endpoint, options=OPTIONS)
        self.broker = rpc.BrokerStub(self.channel)
        self.admin = rpc.AdminStub(self.channel)

    def group_stats(self, topic: str, group: str) -> pb.GroupStats:
        """The numbers of one group in one topic."""
        answer: pb.GetStatsResponse = self.admin.GetStats(pb.GetStatsRequest(topic=topic, group=group), timeout=10)
        assert len(answer.groups) == 1, f"no numbers of group {group} in topic {topic}"
        return answer.groups[0]

    def close(self) -> None:
        """Closes the channel; running calls are cancelled."""
        self.channel.close()

    def __enter__(self) -> Stubs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
