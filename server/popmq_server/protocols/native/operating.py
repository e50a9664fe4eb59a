"""popmq.v1.Admin: GetInfo, ListBrokers, PurgeTopic and Backup; the message groups of FIFO topics; EndLease."""

import contextlib
from collections.abc import AsyncGenerator

from google.protobuf.message import Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract import commands
from popmq_server.contract.capabilities import CAPABILITIES
from popmq_server.contract.commands import EndLease, ResumeMessageGroup, queries
from popmq_server.contract.engine import Commands, Engine
from popmq_server.monitoring.metrics import release
from popmq_server.protocols import validation
from popmq_server.protocols.native import pages, requests
from popmq_server.protocols.native.requests import read
from popmq_server.values.message import MESSAGE_GROUP_BYTES_MAX, check_range, check_text

#: Bytes per second. A slower backup would keep freed pages from reuse for days.
RATE_MIN, RATE_DEFAULT, RATE_MAX = 1 << 20, 64 << 20, 1 << 40


class OperatingService:
    """GetInfo, ListBrokers, PurgeTopic (purge.py: what a purge keeps), and Backup, which lasts as long as the copy."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def GetInfo(self, raw: bytes) -> Message:
        """The release, the engine, what it lacks, with what to use instead, and where it promises less."""
        read(pb.GetInfoRequest, raw)
        info = self._engine.info()
        lacking = [pb.Lacking(capability=name, instead=CAPABILITIES[name].instead) for name in sorted(info.lacking)]
        weaker = [pb.Weaker(promise=name, how=how) for name, how in sorted(info.weaker.items())]
        return pb.GetInfoResponse(version=release(), engine=info.engine, lacking=lacking, weaker=weaker)

    async def ListBrokers(self, raw: bytes) -> Message:
        """The brokers of a cluster; what one does not tell is left out of its row."""
        read(pb.ListBrokersRequest, raw)
        found = await self._engine.ask(queries.Brokers())
        rows = [pb.ClusterBroker(**row._asdict()) for row in found.brokers]
        return pb.ListBrokersResponse(brokers=rows, routes_age_ms=found.routes_age_ms)

    async def PurgeTopic(self, raw: bytes) -> Message:
        """Removes the messages for everybody at once; the space is freed between clients' commands."""
        name = validation.topic_name(read(pb.PurgeTopicRequest, raw).name, "name")
        dropped = await self._engine.execute(commands.PurgeTopic(name))
        return pb.PurgeTopicResponse(dropped=dropped)

    async def Backup(self, raw: bytes) -> AsyncGenerator[Message, None]:
        """Streams the file in pieces of 1 MiB, then its length and checksum."""
        asked = read(pb.BackupRequest, raw).bytes_per_s
        rate = check_range(asked, "bytes_per_s", RATE_MIN, RATE_MAX, RATE_DEFAULT)
        async with contextlib.aclosing(self._engine.backup(rate)) as pieces:
            async for piece in pieces:
                if piece.sha256:
                    yield pb.BackupResponse(end=pb.BackupEnd(bytes=piece.length, sha256=piece.sha256))
                else:
                    yield pb.BackupResponse(data=piece.data, about_bytes=piece.about_bytes)


MESSAGE_GROUPS_DEFAULT = 100

#: Limit of a lease id.
LEASE_ID_BYTES_MAX = 256


class OrderingService:
    """Lists message groups, resumes those that a failure stopped, and ends leases."""

    def __init__(self, engine: Commands) -> None:
        self._engine = engine

    async def EndLease(self, raw: bytes) -> Message:
        """Ends one lease now; its messages follow in the revive."""
        request = read(pb.EndLeaseRequest, raw)
        group = validation.group_name(request.group)
        lease_id, field = check_text(request.lease_id, "lease_id", LEASE_ID_BYTES_MAX), "lease_id"
        if not lease_id:  # an older client, which knows only the number
            field = "checkpoint_id"
            lease_id = str(check_range(request.checkpoint_id, field, 1, requests.INT64_MAX))
        with requests.Paths(lease_id=field):
            return pb.EndLeaseResponse(messages=await self._engine.execute(EndLease(group, lease_id)))

    async def ListMessageGroups(self, raw: bytes) -> Message:
        """Stopped message groups first."""
        request = read(pb.ListMessageGroupsRequest, raw)
        topic, group = validation.topic_name(request.topic), validation.group_name(request.group)
        count = check_range(
            request.max_message_groups, "max_message_groups", 1, validation.ENTRIES_MAX, MESSAGE_GROUPS_DEFAULT
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
        topic, group = validation.topic_name(request.topic), validation.group_name(request.group)
        name = check_text(request.message_group, "message_group", MESSAGE_GROUP_BYTES_MAX, required=True)
        command = ResumeMessageGroup(topic, group, name, request.dead_letter)
        await self._engine.execute(command)
        return pb.ResumeMessageGroupResponse()
