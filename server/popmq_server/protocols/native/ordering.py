"""popmq.v1.Admin: message groups of FIFO topics, and the end of a lease."""

from google.protobuf.message import Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract.commands import EndLease, ResumeMessageGroup, queries
from popmq_server.contract.core import Commands
from popmq_server.protocols.native import pages, requests
from popmq_server.protocols.native.requests import read
from popmq_server.values.message import MESSAGE_GROUP_BYTES_MAX, check_range, check_text

MESSAGE_GROUPS_DEFAULT = 100

#: Of a lease id.
LEASE_ID_BYTES_MAX = 256


class OrderingService:
    """Lists message groups, resumes those that a failure stopped, and ends leases."""

    def __init__(self, engine: Commands) -> None:
        self._engine = engine

    async def EndLease(self, raw: bytes) -> Message:
        """Ends one lease now; its messages follow in the revive."""
        request = read(pb.EndLeaseRequest, raw)
        group = requests.group_name(request.group)
        lease_id, field = check_text(request.lease_id, "lease_id", LEASE_ID_BYTES_MAX), "lease_id"
        if not lease_id:  # an older client, which knows only the number
            field = "checkpoint_id"
            lease_id = str(check_range(request.checkpoint_id, field, 1, requests.INT64_MAX))
        with requests.Paths(lease_id=field):
            return pb.EndLeaseResponse(messages=await self._engine.execute(EndLease(group, lease_id)))

    async def ListMessageGroups(self, raw: bytes) -> Message:
        """Stopped message groups first."""
        request = read(pb.ListMessageGroupsRequest, raw)
        topic, group = requests.topic_name(request.topic), requests.group_name(request.group)
        count = check_range(
            request.max_message_groups, "max_message_groups", 1, requests.ENTRIES_MAX, MESSAGE_GROUPS_DEFAULT
        )
        rows = await self._engine.ask(
            queries.MessageGroups(topic, group, request.stopped_only, rows_max=count, after=pages.begin(request))
        )
        numbers = await self._engine.ask(queries.Groups(topic, group))
        shown = [
            pb.MessageGroupState(
                message_group=row.name, waiting=row.waiting, leased=row.leased, stopped=row.stopped, reason=row.reason
            )
            for row in rows
        ]
        return pb.ListMessageGroupsResponse(
            message_groups=shown,
            waiting=sum(row.waiting for row in numbers),
            stopped=sum(row.stopped for row in numbers),
            next_page_token=pages.token(request, rows.after),
        )

    async def ResumeMessageGroup(self, raw: bytes) -> Message:
        """Retries the head of a stopped message group, or dead-letters it; the message group continues."""
        request = read(pb.ResumeMessageGroupRequest, raw)
        topic, group = requests.topic_name(request.topic), requests.group_name(request.group)
        name = check_text(request.message_group, "message_group", MESSAGE_GROUP_BYTES_MAX, required=True)
        command = ResumeMessageGroup(topic, group, name, request.dead_letter)
        await self._engine.execute(command)
        return pb.ResumeMessageGroupResponse()
