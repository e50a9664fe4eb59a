"""popmq.v1.Admin: emptying a topic. Quotas and limits are fields of topics and groups: admin.py."""

from google.protobuf.message import Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server import commands
from popmq_server.api.native import requests
from popmq_server.api.native.requests import read
from popmq_server.engine.engine import Commands


class LimitingService:
    """PurgeTopic; purge.py describes what it removes and what it keeps."""

    def __init__(self, engine: Commands) -> None:
        self._engine = engine

    async def PurgeTopic(self, raw: bytes) -> Message:
        """Removes the messages for everybody at once; the space is freed between clients' commands."""
        name = requests.topic_name(read(pb.PurgeTopicRequest, raw).name, "name")
        dropped = await self._engine.execute(commands.PurgeTopic(name))
        return pb.PurgeTopicResponse(dropped=dropped)
