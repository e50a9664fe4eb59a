"""popmq.v1.Admin: lists the access keys and their rights. No answer contains a secret."""

from google.protobuf.message import Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract.rights import Need
from popmq_server.errors import Refused
from popmq_server.protocols.access.access_keys import CALLER, NEVER_MS, Key, unauthenticated
from popmq_server.protocols.access.known_keys import Keys
from popmq_server.protocols.native.requests import read


class KeyService:
    """`keys` None: the broker asks for none."""

    def __init__(self, keys: Keys | None) -> None:
        self._keys = keys

    async def ListAccessKeys(self, raw: bytes) -> Message:
        """All keys for admin, else the caller's own: so everybody can see what they may do."""
        read(pb.ListAccessKeysRequest, raw)
        if self._keys is None:
            return pb.ListAccessKeysResponse()
        caller = CALLER.get()
        if isinstance(caller, Refused):
            raise caller
        if caller is None or not self._keys.holds(caller):
            raise unauthenticated("the access key of this call was removed or replaced")
        shown = self._keys.listed() if caller.may(Need("admin")) else [caller]
        return pb.ListAccessKeysResponse(enabled=True, access_keys=map(_row, shown), caller=caller.name)


def _row(key: Key) -> pb.AccessKey:
    expires_ms = 0 if key.expires_ms == NEVER_MS else key.expires_ms
    limits, use = key.limits, key.use
    return pb.AccessKey(
        name=key.name,
        allow=map(str, key.grants),
        expires_ms=expires_ms,
        secrets=key.secrets,
        certificates=sorted(key.certificates),
        connections_max=limits.connections,
        calls_per_s_max=limits.calls_per_s,
        bytes_in_flight_max=limits.bytes_in_flight,
        connections=use.connections,
        bytes_in_flight=use.bytes_in_flight,
        calls=use.calls,
        limited=use.limited.total(),
    )
