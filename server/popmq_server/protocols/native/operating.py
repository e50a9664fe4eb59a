"""popmq.v1.Admin: which engine runs and what it lacks, purging a topic, backups of the running broker."""

import contextlib
from collections.abc import AsyncGenerator

from google.protobuf.message import Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract import commands
from popmq_server.contract.capabilities import CAPABILITIES
from popmq_server.contract.engine import Engine
from popmq_server.monitoring.metrics import release
from popmq_server.protocols.native import requests
from popmq_server.protocols.native.requests import read
from popmq_server.values.message import check_range

#: Bytes per second. A slower backup would keep freed pages from reuse for days.
RATE_MIN, RATE_DEFAULT, RATE_MAX = 1 << 20, 64 << 20, 1 << 40


class OperatingService:
    """GetInfo, PurgeTopic (purge.py says what it keeps), and Backup, whose call lasts as long as the copy."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def GetInfo(self, raw: bytes) -> Message:
        """The release, the engine, and what it lacks, with what to use instead."""
        read(pb.GetInfoRequest, raw)
        info = self._engine.info()
        lacking = [pb.Lacking(capability=name, instead=CAPABILITIES[name].instead) for name in sorted(info.lacking)]
        return pb.GetInfoResponse(version=release(), engine=info.engine, lacking=lacking)

    async def PurgeTopic(self, raw: bytes) -> Message:
        """Removes the messages for everybody at once; the space is freed between clients' commands."""
        name = requests.topic_name(read(pb.PurgeTopicRequest, raw).name, "name")
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
