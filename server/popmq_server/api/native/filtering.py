"""popmq.v1.Admin: the filter of a group in a topic.

docs/filters.md describes filters; subscription.py stores them.
"""

from google.protobuf.message import Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server import commands
from popmq_server.api.native import requests, responses
from popmq_server.api.native.requests import read
from popmq_server.commands.filtering import EVERY_MESSAGE
from popmq_server.engine.engine import Commands


class FilteringService:
    """Sets a group's filter; Pop, Pull and Peek name theirs in the request."""

    def __init__(self, engine: Commands) -> None:
        self._engine = engine

    async def SetFilter(self, raw: bytes) -> Message:
        """Applies from the next Pop on. Messages already filtered out do not come back; retries are filtered too."""
        request = read(pb.SetFilterRequest, raw)
        wanted = requests.wanted(request) or EVERY_MESSAGE
        topic, group = requests.topic_name(request.topic), requests.group_name(request.group)
        made = await self._engine.execute(commands.SetFilter(topic, group, wanted))
        return pb.SetFilterResponse(subscription=responses.subscription(topic, made))
